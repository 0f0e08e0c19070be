"""Inputs that are tables of a lake: the files of one snapshot, and what its metadata says about them."""
