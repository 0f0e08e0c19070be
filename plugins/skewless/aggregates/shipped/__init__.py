"""The Python aggregates that come with Skewless; ``pyproject.toml`` registers them as anybody registers theirs."""
