"""A key as people see it."""

from __future__ import annotations

#: A longer key is cut on a page; the JSON API has it whole.
LONGEST_KEY = 120


def shown_key(key: str) -> str:
    """A key with its odd characters visible, cut where it is too long; not yet escaped for HTML.

    >>> shown_key("word"), shown_key("")
    ('word', "''")
    """
    cut = key if len(key) <= LONGEST_KEY else f"{key[:LONGEST_KEY]}\N{HORIZONTAL ELLIPSIS}"
    return cut if cut.isprintable() and cut else repr(cut)
