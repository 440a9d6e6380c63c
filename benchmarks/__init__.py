"""Measurements: our ops, the peers and a plain copy, timed side by side in one run."""
