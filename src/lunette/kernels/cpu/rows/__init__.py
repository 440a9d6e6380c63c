"""What kernels are made of: where rows are, how they are fetched, folded along and across."""
