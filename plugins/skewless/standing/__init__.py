"""Standing states: what changed in each part since its states were made, and where the states are kept."""
