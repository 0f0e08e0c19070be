"""What the next stage will find: rows of which keys, in which tasks, at which cost."""
