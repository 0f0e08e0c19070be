"""Partial states as columns and as files."""
