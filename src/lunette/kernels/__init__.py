"""Interpreters that run at the speed of memory and agree with the specification."""
