"""From partial states to the published result."""
