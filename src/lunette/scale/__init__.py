"""Arrays larger than memory on disk: stores, streaming plans, and the commands that pool them."""
