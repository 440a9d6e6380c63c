"""Prepared calls, the threads that share them out, and the memory they work in."""
