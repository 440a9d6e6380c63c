"""What a kernel is told: windows, tiles and scratch memory of one op on one shape."""
