"""Convolution and its gradients: tiles of the image multiplied with packed weights."""
