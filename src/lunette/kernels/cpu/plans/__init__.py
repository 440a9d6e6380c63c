"""What a call needs to know before it touches a cell: tables of int64 that kernels read, and the sizes behind them."""
