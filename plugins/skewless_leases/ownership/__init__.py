"""Who may write: leases on one piece of work, fences and turns."""
