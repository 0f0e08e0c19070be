"""What changes next: the forecast, the schedule, the costs, and the decision made of them."""
