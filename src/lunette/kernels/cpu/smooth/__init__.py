"""Smooth max over small windows: its values, tangents and gradients."""
