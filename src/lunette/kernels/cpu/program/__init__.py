"""Prepared calls: kernels, their schedules and the threads that run them."""
