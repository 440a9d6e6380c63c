"""Max over any windows: its values, its winners, and its derivatives by them."""
