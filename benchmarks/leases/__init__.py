"""The leases beside the algorithm that they come from, simulated in virtual time."""
