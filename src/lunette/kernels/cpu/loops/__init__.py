"""The kernels of pooling: a loop nest each."""
