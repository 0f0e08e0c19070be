"""Preparing a run: spec and input frozen, waves cut, keys sampled, plan 0 written."""
