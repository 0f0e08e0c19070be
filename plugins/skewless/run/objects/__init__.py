"""Paths on object stores: the client, its files, and how only the first writer of an object wins."""
