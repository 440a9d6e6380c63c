"""Mean over any windows, and its gradient."""
