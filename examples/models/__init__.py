"""Models computed from published aggregates, as the papers behind the aggregates do."""
