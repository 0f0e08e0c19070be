"""Models that are made of published aggregates: what the aggregates' papers made them for."""
