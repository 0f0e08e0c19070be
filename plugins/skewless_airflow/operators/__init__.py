"""The kinds of tasks, and how each ends when something goes wrong: with one sentence, and tried again if that helps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from skewless.errors import SkewlessError

#: Exit codes that come out the same however often a task is retried: bad spec or input, failed quality.
HOPELESS = frozenset({2, 3})


@contextmanager
def end_with_sentence() -> Iterator[None]:
    """End a task with the sentence of a Skewless error, tried again only where that can help."""
    try:
        yield
    except SkewlessError as err:
        raise ending(err.exit_code, str(err)) from None


def ending(exit_code: int, sentence: str) -> AirflowException:
    """The exception that ends a task, for the exit code of its step or of its error."""
    return (AirflowFailException if exit_code in HOPELESS else AirflowException)(sentence)
