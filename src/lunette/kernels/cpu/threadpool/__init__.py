"""The thread pool."""
