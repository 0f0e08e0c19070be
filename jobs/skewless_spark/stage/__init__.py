"""One stage: admit a wave, route, reduce within the budget, measure, commit."""
