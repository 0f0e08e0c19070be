"""What every stage has, whatever its engine: its queue, routes, states, and what is counted of them."""
