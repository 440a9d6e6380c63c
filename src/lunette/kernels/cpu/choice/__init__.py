"""Which kernels serve a verb of an op: by op, shape, layout and dtype; found once and remembered."""
