"""D-Choices and W-Choices (Nasir et al., "When Two Choices Are not Enough", ICDE 2016).

Every source finds the head of the stream, the keys of frequency at least theta = 1 / (5 W), with a SpaceSaving summary
of its own. Head keys get d candidates, or all W tasks; tail keys get two, as in Partial Key Grouping.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.peers.candidates import compiled, least_loaded_candidate, least_loaded_task
from benchmarks.peers.measurement import Stream, Targets
from benchmarks.peers.space_saving import SpaceSaving, count_message, empty_summaries

#: The imbalance that d must allow for, as a part of all messages (the paper's epsilon).
TOLERANCE = 1e-4
#: theta times the number of tasks.
HEAD_SHARE = 0.2
#: Counters per task in a summary: counts are too high by at most a quarter of theta times the messages.
COUNTERS_PER_TASK = 20
#: Messages of a source between two computations of d; before that, at every power of two.
REFRESH_EVERY_MESSAGES = 2048


def d_choices(stream: Stream) -> Targets:
    """D-Choices: head keys get as many candidates as balance needs by the summary of their source."""
    return _routed(stream, all_tasks=False)


def w_choices(stream: Stream) -> Targets:
    """W-Choices: head keys may go to all tasks."""
    return _routed(stream, all_tasks=True)


def _routed(stream: Stream, *, all_tasks: bool) -> Targets:
    summary = empty_summaries(stream.sources, COUNTERS_PER_TASK * stream.tasks, stream.distinct)
    return _route(stream.keys, stream.ids, stream.tasks, summary, all_tasks, stream.seed)


@compiled
def choices_needed(head: npt.NDArray[np.float64], tasks: int, tolerance: float) -> int:
    """The fewest candidates d per head key for which every prefix of the head fits into its tasks.

    With n tasks and b_h = n - n ((n-1)/n)**(h d) distinct tasks to expect among h d candidates, the condition for
    each h in 1..|H| is (the paper's constraints on d)::

        sum_{i<=h} p_i + (b_h/n)**d sum_{h<i<=|H|} p_i + (b_h/n)**2 sum_{i>|H|} p_i  <=  b_h/n + tolerance

    Args:
        head: Frequencies p_i of the head keys, descending, parts of all messages, shape (head keys,).
        tasks: Number n of tasks.
        tolerance: Part of all messages by which the tasks of a prefix together may exceed their average.

    Returns:
        d, at least 2, at most ``tasks``; ``tasks`` means that fewer do not suffice.
    """
    choices = 2
    while choices < tasks and not _suffices(head, choices, tasks, tolerance):
        choices += 1
    return choices


@compiled
def _suffices(head: npt.NDArray[np.float64], choices: int, tasks: int, tolerance: float) -> bool:
    head_mass = head.sum()
    tail_mass, prefix_mass, missed_by_all = 1.0 - head_mass, 0.0, 1.0
    missed_by_key = (1.0 - 1.0 / tasks) ** choices
    for share in head:
        prefix_mass += share
        missed_by_all *= missed_by_key
        covered = 1.0 - missed_by_all
        load = prefix_mass + covered**choices * (head_mass - prefix_mass) + covered**2 * tail_mass
        if load > covered + tolerance:
            return False
    return True


@compiled
def head_of(summary: SpaceSaving, source: int, seen: int) -> npt.NDArray[np.float64]:
    """Frequencies of a source's head keys, descending, parts of the ``seen`` messages of the source."""
    counts = summary.counts[source]
    threshold = seen * HEAD_SHARE / (counts.shape[0] // COUNTERS_PER_TASK)
    size = 0
    while size < counts.shape[0] and counts[size] >= threshold:
        size += 1
    shares: npt.NDArray[np.float64] = counts[:size] / seen
    return shares


@compiled
def _is_refresh(seen: int) -> bool:
    return seen % REFRESH_EVERY_MESSAGES == 0 or (seen & (seen - 1)) == 0


@compiled
def _route(
    keys: npt.NDArray[np.uint64],
    ids: npt.NDArray[np.int64],
    tasks: int,
    summary: SpaceSaving,
    all_tasks: bool,
    seed: np.uint64,
) -> Targets:
    sources = summary.keys.shape[0]
    estimates = np.zeros((sources, tasks), dtype=np.int64)
    head_choices = np.full(sources, tasks, dtype=np.int64)
    targets = np.empty(keys.shape[0], dtype=np.int32)
    for message in range(keys.shape[0]):
        source, seen = message % sources, message // sources + 1
        count = count_message(summary, source, ids[message])
        if not all_tasks and _is_refresh(seen):
            head_choices[source] = choices_needed(head_of(summary, source, seen), tasks, TOLERANCE)
        choices = head_choices[source] if count * tasks >= HEAD_SHARE * seen else 2
        if choices < tasks:
            target = least_loaded_candidate(estimates[source], keys[message], choices, seed)
        else:
            target = least_loaded_task(estimates[source])
        estimates[source, target] += 1
        targets[message] = target
    return targets
