"""Memory for results, and for what kernels work in."""
