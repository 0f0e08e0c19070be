"""``python -m benchmarks.simulate``: one policy on the keys of a file, and how evenly they were spread.

Exit codes: 0 good, 2 bad options or input.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from benchmarks.outcome import Outcome
from benchmarks.peers import PEERS
from benchmarks.staged import UNITS, WAVES, simulate
from benchmarks.workloads import numbered
from skewless.document import sentence_of
from skewless.errors import InputError, SkewlessError, SpecError, nearest
from skewless.planner.policies import POLICIES
from skewless.spec.routing import Routing

Floats = npt.NDArray[np.float64]

WHERE = "python -m benchmarks.simulate"
#: As many as a spec may have reducers.
MOST_TASKS = 10_000
_NPY_MAGIC = b"\x93NUMPY"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    try:
        options = _parser().parse_args(arguments)
        begin = time.perf_counter()
        outcome = outcome_of(options)
        seconds = time.perf_counter() - begin
    except SkewlessError as err:
        print(err, file=sys.stderr)
        return err.exit_code
    print(json.dumps({**outcome.as_dict(), "seconds": round(seconds, 3)}) if options.json else _lines(outcome, seconds))
    return 0


def outcome_of(options: argparse.Namespace) -> Outcome:
    """Read what the options name and simulate it.

    Raises:
        SkewlessError: an option or a file cannot be used; it says which and why.
    """
    if options.policy not in POLICIES and options.policy not in PEERS:
        known = nearest(options.policy, {*POLICIES, *PEERS})
        raise SpecError("--policy", "a staged policy or a peer", repr(options.policy), known)
    keys = read_keys(options.keys)
    return _staged(options, keys) if options.policy in POLICIES else _peer(options, keys)


def read_keys(path: str) -> npt.NDArray[Any]:
    """The keys of a ``.npy`` file, integers in the byte order of this machine or texts.

    Raises:
        InputError: it is no such file, or not flat, or empty, or of another type.
    """
    where, required = f"--keys {path}", "a flat array of integers or texts, at least one"
    keys = _flat_array(where, required, path)
    if keys.dtype.kind in "iu":
        return keys.astype(keys.dtype.newbyteorder("="))
    if keys.dtype.kind not in "US":
        missing = int(np.isnan(keys).sum()) if keys.dtype.kind == "f" else 0
        came = f"an array of {keys.dtype}" + (f" with {missing:,} NaN" if missing else "")
        raise InputError(where, required, came, "number the keys, or save them as integers or as texts")
    try:
        return keys if keys.dtype.kind == "U" else np.char.decode(keys, "utf-8")
    except UnicodeDecodeError:
        raise InputError(where, "texts in UTF-8", "other bytes", "save them as numpy texts, dtype U") from None


def _flat_array(where: str, required: str, path: str) -> npt.NDArray[Any]:
    array = _array(where, required, path)
    if array.ndim != 1:
        raise InputError(where, required, f"an array of shape {array.shape}", "flatten it before it is saved")
    if not array.size:
        raise InputError(where, required, "an empty array", "save at least one")
    return array


def _array(where: str, required: str, path: str) -> npt.NDArray[Any]:
    try:
        with Path(path).open("rb") as file:
            if file.read(len(_NPY_MAGIC)) != _NPY_MAGIC:
                raise InputError(where, "a .npy file", "another kind of file", "write it with numpy.save")
        array: npt.NDArray[Any] = np.load(path, allow_pickle=False)
    except OSError as err:
        raise InputError(where, "a readable .npy file", err.strerror or type(err).__name__, "check the path") from None
    except (ValueError, EOFError, MemoryError, OverflowError) as err:
        came = "an array of Python objects" if "pickle" in str(err).lower() else "one that is cut off or damaged"
        raise InputError(where, required, came, "write it with numpy.save(..., allow_pickle=False)") from None
    return array


def _numbers(option: str, path: str | None, count: int, of_what: str, *, above_zero: bool) -> Floats | None:
    """One finite number, not negative, for each of ``count`` things."""
    if path is None:
        return None
    where = f"{option} {path}"
    required = f"{count:,} finite numbers {'above' if above_zero else 'of at least'} 0, one for each {of_what}"
    array = _flat_array(where, required, path)
    if array.dtype.kind not in "iuf":
        raise InputError(where, required, f"an array of {array.dtype}", "save numbers")
    if len(array) != count:
        raise InputError(where, required, f"{len(array):,} numbers", f"save one for each {of_what}, in ascending order")
    numbers = array.astype(np.float64)
    wrong = ~np.isfinite(numbers) | (numbers <= 0 if above_zero else numbers < 0)
    if wrong.any() or not numbers.any():
        came = f"{numbers[wrong][0]} among them" if wrong.any() else "nothing but 0"
        raise InputError(where, required, came, "correct them")
    return numbers


def _staged(options: argparse.Namespace, keys: npt.NDArray[Any]) -> Outcome:
    distinct = len(numbered(keys)[0]) if options.costs else 0
    costs = _numbers("--costs", options.costs, distinct, "distinct key", above_zero=False)
    speeds = _numbers("--speeds", options.speeds, options.tasks, "task", above_zero=True)
    _refuse_bad_routing(options)
    try:
        outcome, _ = simulate(
            keys, options.tasks, options.policy, options.waves, options.budget, units=options.units,
            in_order=options.in_order, overhead=options.overhead, costs=costs, speeds=speeds,
            mergeable=not options.not_mergeable,
        )  # fmt: skip
    except UnicodeEncodeError:
        raise InputError(f"--keys {options.keys}", "texts", "half a character in one", "save whole ones") from None
    return outcome


def _refuse_bad_routing(options: argparse.Namespace) -> None:
    """Refuse what the spec's own bounds forbid.

    Raises:
        SpecError: names the field of the routing.
    """
    given = {"policy": options.policy, "reducers": options.tasks, "waves": options.waves, "budget": options.budget}
    try:
        Routing.model_validate(given)
    except ValidationError as err:
        raise sentence_of(err, Routing, f"{WHERE}, routing", SpecError) from None


def _peer(options: argparse.Namespace, keys: npt.NDArray[Any]) -> Outcome:
    given = {"--costs": options.costs, "--speeds": options.speeds, "--not-mergeable": options.not_mergeable}
    for option, value in given.items():
        if value:
            raise SpecError(option, "a staged policy", f"the peer {options.policy!r}", "a peer counts messages only")
    words = keys.astype(np.int64) if keys.dtype.kind in "iu" else numbered(keys)[1]
    return PEERS[options.policy](words, options.tasks, sources=options.sources, seed=options.seed)


def _lines(outcome: Outcome, seconds: float) -> str:
    share = outcome.rows_forwarded / outcome.messages
    return (
        f"{outcome.policy}: {outcome.messages:,} messages over {outcome.tasks:,} tasks in {outcome.stages} stages\n"
        f"  makespan over ideal   {outcome.makespan_over_ideal:.4f}\n"
        f"  imbalance, average    {outcome.imbalance_fraction:.3g} of all messages\n"
        f"  imbalance, final      {outcome.imbalance_final:.3g} of all messages\n"
        f"  states per key        {outcome.states_per_key:.3f}\n"
        f"  rows forwarded        {outcome.rows_forwarded:,} ({share:.2%})\n"
        f"  seconds               {seconds:.1f}"
    )


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, and no usage before it."""

    def error(self, message: str) -> NoReturn:
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            raise SpecError(WHERE, missing, "nothing for it", "see --help")
        raise SpecError(WHERE, "options that --help lists", message, "see --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=WHERE, description="Simulate one policy on the keys of a file, and say how evenly it spread them.",
        epilog=f"Staged policies: {', '.join(POLICIES)}. Peers: {', '.join(PEERS)}. "
        "A name of both kinds is the staged policy.",
        allow_abbrev=False,
    )  # fmt: skip
    add = parser.add_argument
    add("--keys", required=True, metavar="FILE.npy", help="keys in order of arrival: integers or texts")
    add("--tasks", required=True, type=_whole("--tasks", 1, MOST_TASKS), metavar="W", help="parallel tasks")
    add("--policy", required=True, metavar="NAME", help="a staged policy or a peer")
    add("--json", action="store_true", help="print one JSON object")
    peers = parser.add_argument_group("peers").add_argument
    peers("--sources", type=_whole("--sources", 1), default=5, metavar="S", help="sources of the stream (%(default)s)")
    peers("--seed", type=_whole("--seed", 0, 2**64 - 1), default=0, help="of the hash functions (%(default)s)")
    _add_staged(parser)
    return parser


def _add_staged(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("staged policies").add_argument
    add("--waves", type=_waves, default=WAVES, help="relative sizes of the slices that stages admit (1,4,15,80)")
    add("--budget", type=_number("--budget"), help="rows a task may reduce in a stage, over the fair share")
    add("--overhead", type=_number("--overhead"), default=0.0, help="what a stage costs, as a part of the ideal (0)")
    add("--units", type=_whole("--units", 1), default=UNITS, help="source partitions (%(default)s)")
    add("--in-order", action="store_true", help="waves take partitions as they come, and are no samples")
    add("--costs", metavar="FILE.npy", help="cost of a message of each distinct key, keys ascending")
    add("--speeds", metavar="FILE.npy", help="speed of each task")
    add("--not-mergeable", action="store_true", help="a key may not be split")


def _whole(option: str, low: int, high: int = 10**9) -> Callable[[str], int]:
    def parse(text: str) -> int:
        required = f"a whole number from {low:,} to {high:,}"
        try:
            number = int(text)
        except ValueError:
            raise SpecError(option, required, repr(text), f"for example {option} {low + 10}") from None
        if not low <= number <= high:
            raise SpecError(option, required, text, f"for example {option} {low + 10}")
        return number

    return parse


def _number(option: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf:
            raise SpecError(option, "a finite number of at least 0", repr(text), f"for example {option} 1.0")
        return number

    return parse


def _waves(text: str) -> tuple[float, ...]:
    try:
        weights = tuple(float(weight) for weight in text.split(","))
    except ValueError:
        weights = ()
    if not weights or not all(0 < weight < math.inf for weight in weights):
        raise SpecError("--waves", "finite numbers above 0 with commas between", repr(text), "for example 1,4,15,80")
    return weights


if __name__ == "__main__":
    sys.exit(main())
