"""Tasks on a GPU: Triton's kernels, compiled while a program is lowered, launched by JAX itself."""
