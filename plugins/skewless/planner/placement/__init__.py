"""Ways to place keys and tokens on tasks; the policies choose among them."""
