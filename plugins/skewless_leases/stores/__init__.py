"""Key-value stores with compare-and-set, and the tables that leases keep in them."""
