"""Poolings whose results are integers: the mode, the rounded mean, and the min, which is a max turned around."""
