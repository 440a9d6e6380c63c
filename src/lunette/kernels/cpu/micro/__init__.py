"""What loops are made of: rows loaded, reduced and stored; index arithmetic; guards."""
