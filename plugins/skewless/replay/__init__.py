"""What another policy would have made of a recorded run."""
