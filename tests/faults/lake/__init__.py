"""Faults of results that are published in tables: kills at each write, and wires to an object store that break."""
