"""Workloads, geometries, values and layouts: the cases that tests check and benchmarks time."""
