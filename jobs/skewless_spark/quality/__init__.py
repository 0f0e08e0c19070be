"""Great Expectations over input, ledger and result."""
