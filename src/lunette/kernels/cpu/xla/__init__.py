"""XLA's calls of our handler, served without the interpreter."""
