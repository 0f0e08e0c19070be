"""A result beside one that another job has made: key by key, each aggregate within what it states of its error."""
