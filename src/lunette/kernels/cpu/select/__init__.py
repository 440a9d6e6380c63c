"""Which kernels serve."""
