"""From factories of kernels to machine code."""
