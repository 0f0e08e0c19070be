"""Whom Skewless is measured against, and Skewless itself: each a way to compute a cell."""
