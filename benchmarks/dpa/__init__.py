"""The experiments of the DPA load balancer (sections 6.3 and 6.4), played again with our ring and planner."""
