"""Lunette in PyTorch: registered operators, modules, and a swap of torch's own pooling modules."""
