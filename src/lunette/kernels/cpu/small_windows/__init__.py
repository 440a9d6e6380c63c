"""Values of a max or a mean over small windows: the rows of a window folded into one as they are read."""
