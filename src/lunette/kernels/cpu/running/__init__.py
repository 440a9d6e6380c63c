"""Prepared calls, and the threads that share them out."""
