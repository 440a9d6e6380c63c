"""Vectors of 64 bytes: loads, stores, halves, exponentials; memory asked for ahead, and written past the caches."""
