"""Vectors of 64 bytes: loads, stores, shuffles, prefetch, streaming stores."""
