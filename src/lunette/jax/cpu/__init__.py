"""Tasks on the CPU: a handler that XLA calls with the addresses of arrays."""
