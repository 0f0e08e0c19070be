"""From views to HTML: templates, charts, and keys as escaped text."""
