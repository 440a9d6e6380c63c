"""From factories of kernels to machine code, on disk and in this process."""
