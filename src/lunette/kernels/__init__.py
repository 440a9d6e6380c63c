"""Kernels: fast interpreters that agree with `lunette.spec` and assume what the ops have checked."""
