"""Where a key goes: hashes, the ring, virtual tasks, waves and the routing plan of one epoch."""
