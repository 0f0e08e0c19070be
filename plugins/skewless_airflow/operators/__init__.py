"""The kinds of tasks, and how each ends when something goes wrong: with one sentence, and tried again if that helps."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

import structlog
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from skewless.documents.step_documents import Failure, failure_document
from skewless.errors import QualityError, SkewlessError, explained_here
from skewless_airflow.observability.links import address_of, quality_page, skew_page
from skewless_airflow.run_store import run_directory

#: Exit codes that come out the same however often a task is retried: bad spec or input, failed quality, no rights.
HOPELESS = frozenset({2, 3, 4})
#: The exceptions that end a task with a sentence, each with the address of the report; "" where there is none.
_REPORTS: WeakKeyDictionary[BaseException, str] = WeakKeyDictionary()


@contextmanager
def end_with_sentence(context: Context, group: str | None = None) -> Iterator[None]:
    """End a task with the sentence of its error and the address of the run's report, tried again only where it helps.

    Args:
        group: the name of one aggregation of several in a DAG, or an empty one; None of a task that is of no run.
    """
    try:
        yield
    except (SkewlessError, OSError, MemoryError) as err:
        if (known := err if isinstance(err, SkewlessError) else explained_here(err)) is None:
            raise
        if group is not None:  # pages find it where a step on Spark leaves its own
            failure = Failure(exit_code=known.exit_code, sentence=str(known))
            with suppress(SkewlessError, OSError):  # what ended the task may keep this from being written, too
                run_directory(context["dag_run"], group).write_once(failure_document(try_name(context["ti"])), failure)
        raise ending(known.exit_code, str(known), context, group or "") from None
    except AirflowSkipException:
        raise
    except AirflowException as err:
        if err not in _REPORTS:
            _tell(err, _report(context, group or "", 1))
        raise


def try_name(ti: Any) -> str:
    """Of a try, which no other has, not even after the metadata database was made anew and numbers start again."""
    return f"{ti.task_id}-{ti.try_number}-{str(ti.id)[-8:]}"


def ending(exit_code: int, sentence: str, context: Context, group: str = "") -> AirflowException:
    """The exception that ends a task, for the exit code of its step or of its error."""
    err = (AirflowFailException if exit_code in HOPELESS else AirflowException)(sentence)
    _tell(err, _report(context, group, exit_code))
    return err


def _report(context: Context, group: str, exit_code: int) -> str:
    dag_run = context.get("dag_run")
    if dag_run is None:
        return ""
    page = quality_page if exit_code == QualityError.exit_code else skew_page
    return address_of(page(dag_run.dag_id, dag_run.run_id, group))


def _tell(err: AirflowException, report: str) -> None:
    """Let Airflow log an exception by its sentence.

    Airflow logs what ends a task as "Task failed with exception", with a stack of its own frames. Loggers that were
    made before share the list of processors, so it is changed in place, as ``structlog.testing`` does.
    """
    _REPORTS[err] = report
    processors = structlog.get_config()["processors"]
    if say_sentence not in processors:
        processors.insert(0, say_sentence)


def say_sentence(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A structlog processor: the sentence and the report in place of a stack, for exceptions of ``end_with_sentence``.

    >>> say_sentence(None, "error", {"event": "another one", "exc_info": True})
    {'event': 'another one', 'exc_info': True}
    """
    err = sys.exc_info()[1]
    if not event.get("exc_info") or err is None or err not in _REPORTS:
        return event
    told = {name: value for name, value in event.items() if name != "exc_info"}
    return {**told, "event": str(err), **({"report": _REPORTS[err]} if _REPORTS[err] else {})}
