"""How a process of the command line ends: an error is one sentence on standard error, and an exit code."""

import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, cast

import typer

from skewless.errors import MachineError, SkewlessError, explained_here

#: What the extra ``spark`` brings, of all that is imported by name: without it the other commands work.
_OF_SPARK = frozenset({"great_expectations", "jsonschema", "pandas", "py4j", "pyarrow", "pyspark"})


class NotComparedError(Exception):
    """Whatever keeps results from being compared ends with 2."""


def call(app: typer.Typer) -> NoReturn:
    """Run the command that the arguments name, and end with its exit code."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a character is no failure
        cast("Any", stream).reconfigure(errors="backslashreplace")
    with _others_apart() as (log, stacks):
        try:
            code = app(standalone_mode=False)
        except Exception as err:  # noqa: BLE001  # the last line of defence: every failure ends in its sentence
            if hasattr(err, "format_message"):  # the command was called wrongly; without a message, its help is shown
                message = err.format_message()
                command = context.command_path if (context := getattr(err, "ctx", None)) else "skewless"
                hint = "" if message.endswith("?") else f"; see {command} --help."
                sys.stderr.write(f"skewless: {message.rstrip('.')}{hint}\n" if message else "")
                sys.exit(2)
            cause = err.__cause__ if isinstance(err, NotComparedError) and err.__cause__ else err
            sentence, code = _sentence_of(cause)
            if code in {1, MachineError.exit_code} and not sentence.endswith("?"):
                sentence = f"{sentence.removesuffix('.')}{''.join(getattr(err, '__notes__', ()))}."
            if not isinstance(cause, SkewlessError | ModuleNotFoundError):
                stacks.append(cause)
                sentence = f"{sentence} Its stack trace: {log}"
            sys.stderr.write(f"skewless: {sentence}\n")
            sys.exit(2 if isinstance(err, NotComparedError) else code)
        sys.exit(code or 0)


@contextmanager
def _others_apart() -> Iterator[tuple[Path, list[BaseException]]]:
    """A file for what Spark, its workers and Python's loggers write on standard error; it stays if it gets a stack."""
    handle, name = tempfile.mkstemp(prefix="skewless-", suffix=".log")
    shown, ours, stacks = sys.stderr, os.dup(2), list[BaseException]()
    if shown is sys.__stderr__ and shown is not None:
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding=shown.encoding, errors="backslashreplace")
    os.dup2(handle, 2)
    with os.fdopen(handle, "w") as out:
        apart, told = logging.StreamHandler(out), logging.StreamHandler(sys.stderr)
        logging.getLogger().addHandler(apart)
        logging.getLogger("skewless_spark").addHandler(told)
        try:
            yield Path(name), stacks
        finally:
            logging.getLogger().removeHandler(apart)
            logging.getLogger("skewless_spark").removeHandler(told)
            os.dup2(ours, 2)
            os.close(ours)
            sys.stderr = shown
            for err in stacks:
                traceback.print_exception(err, file=out)
            if not stacks:
                Path(name).unlink()


def _sentence_of(err: BaseException) -> tuple[str, int]:
    if isinstance(err, ModuleNotFoundError) and err.name in _OF_SPARK:
        fact = f"the package {err.name} is not installed"
        err = MachineError.saying("this command", fact, "install skewless[spark]")
    known = err if isinstance(err, SkewlessError) else None if "pyspark" in sys.modules else explained_here(err)
    if known is not None:
        return str(known), known.exit_code
    try:
        # First of all, as it ends the program with a sentence where PySpark's files are of two versions.
        from skewless_spark.session.spark_errors import exit_code_of, sentence_for  # noqa: PLC0415  # imports Spark
    except ModuleNotFoundError:
        return f"{type(err).__name__}: {err}", 1
    return sentence_for(err), exit_code_of(err)
