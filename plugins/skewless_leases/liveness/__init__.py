"""Heartbeats, and how long each worker has been silent."""
