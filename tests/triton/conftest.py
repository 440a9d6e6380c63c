"""Triton runs in its interpreter here: the variable must be set before anything imports Triton."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
