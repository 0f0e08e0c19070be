"""Who inherits from whom when virtual tasks are split and merged, and where they go on reading.

After Samza's SEP-32, "Checkpointing": a split task inherits its parent's offset. A merged task there
starts at the least offset of its children and reads again what the others had read; here it keeps
each child's offset, so that nothing is read twice or lost. A missing sibling counts as "nothing read".

A checkpoint is a virtual task and the next offset that it reads: each row of its keys with a smaller
offset has been read. A later checkpoint of another task never takes that back, so checkpoints are
kept across splits and merges, and for each key the highest offset of any task that contains it is
what has been read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from skewless.errors import PlanError
from skewless.routing.hashing import bucket_hash
from skewless.routing.virtual_task import VirtualTask


def bucket_of(key: str | None, offset: int, factor: int) -> int:
    """The bucket of a row among the ``factor`` buckets of its reducer: 0 <= bucket < factor.

    ``bucket_hash(key) mod factor``, as ``RoutingPlan.tail_task``; a row without key goes by its offset
    (SEP-32, "Proposed Changes"). A plan spreads rows without key over the tasks of all reducers
    (``RoutingPlan.row_hash``); this is for those that have come to a reducer.

    Args:
        key: key text, or None.
        offset: the row's offset in its source, or its origin (``hashing.pack_origin``); at least 0.
        factor: a power of two.

    Raises:
        PlanError: the offset is negative, or the factor is no power of two.
    """
    if not VirtualTask(0, 0, factor).well_formed:
        raise PlanError("bucket", "a factor that is a power of two", f"{factor}")
    _refuse_negative("bucket", offset)
    return (offset if key is None else bucket_hash(key)) % factor


def contains(ancestor: VirtualTask, task: VirtualTask) -> bool:
    """Whether all keys of ``task`` are keys of ``ancestor``; a task contains itself."""
    return (
        ancestor.reducer == task.reducer
        and ancestor.factor <= task.factor
        and task.bucket % ancestor.factor == ancestor.bucket
    )


def ancestors(task: VirtualTask) -> tuple[VirtualTask, ...]:
    """The tasks that contain ``task``, itself not among them: the parent first, that of factor 1 last.

    Raises:
        PlanError: the task is not well formed.
    """
    _refuse_malformed(task)
    line = []
    at = task.parent
    while at is not None:
        line.append(at)
        at = at.parent
    return tuple(line)


def descendants(task: VirtualTask, factor: int) -> tuple[VirtualTask, ...]:
    """The ``factor / task.factor`` tasks of a factor that share the keys of ``task``, by ascending bucket.

    Args:
        task: the ancestor.
        factor: a power of two, at least the task's own, which gives the task alone.

    Raises:
        PlanError: the factor is smaller than the task's or no power of two, or the task is not well formed.
    """
    _refuse_malformed(task)
    if factor < task.factor or not VirtualTask(0, 0, factor).well_formed:
        raise PlanError(f"descendants of {task}", f"a power of two of at least {task.factor}", f"{factor}")
    return tuple(VirtualTask(task.reducer, bucket, factor) for bucket in range(task.bucket, factor, task.factor))


def split(tasks: Collection[VirtualTask]) -> tuple[VirtualTask, ...]:
    """All tasks of a reducer at twice the factor, by ascending bucket; the inverse of ``merge``.

    Args:
        tasks: all tasks of one reducer at one factor, in any order.

    Raises:
        PlanError: a task is missing, comes twice, or is of another reducer or factor.
    """
    reducer, factor = _complete(tasks)
    return descendants(VirtualTask(reducer, 0, 1), 2 * factor)


def merge(tasks: Collection[VirtualTask]) -> tuple[VirtualTask, ...]:
    """All tasks of a reducer at half the factor, by ascending bucket; the inverse of ``split``.

    Args:
        tasks: all tasks of one reducer at one factor, in any order.

    Raises:
        PlanError: the factor is 1, or as ``split``.
    """
    reducer, factor = _complete(tasks)
    if factor == 1:
        raise PlanError(f"merge of reducer {reducer}", "a factor of 2 or more", "factor 1")
    return descendants(VirtualTask(reducer, 0, 1), factor // 2)


def start_offsets(task: VirtualTask, checkpoints: Mapping[VirtualTask, int]) -> dict[VirtualTask, int]:
    """Where each part of the keys of ``task`` goes on, from all that was ever checkpointed.

    A reader of ``task`` begins at the least of these offsets and leaves out what ``unread`` denies.
    It may checkpoint any offset p as soon as its rows below p are read; the checkpoints that it
    started from must be kept until then, since some may be ahead of p. The offsets of a
    reducer's task of factor 1 say all that its checkpoints say, and may take their place.

    Args:
        task: of any factor, whether it was ever checkpointed or not.
        checkpoints: next offset to read of each task, at least 0. Those of other reducers are
            ignored, since a stage checkpoints all its tasks in one mapping.

    Returns:
        The fewest tasks that part the keys of ``task`` by their offset, in ascending order of
        (factor, bucket): ``task`` alone where all go on at one offset. 0 where nothing was read.

    Raises:
        PlanError: an offset is negative, or a task (of any reducer) is not well formed.
    """
    _refuse_malformed(task)
    for known, offset in checkpoints.items():
        _refuse_malformed(known)
        _refuse_negative(f"checkpoint of {known}", offset)
    read = max((offset for known, offset in checkpoints.items() if contains(known, task)), default=0)
    below = {known: offset for known, offset in checkpoints.items() if contains(task, known) and known != task}
    parts = _parts(task, read, below)
    return {part: parts[part] for part in sorted(parts, key=lambda one: (one.factor, one.bucket))}


def _parts(task: VirtualTask, read: int, below: Mapping[VirtualTask, int]) -> dict[VirtualTask, int]:
    """The parts of ``task``, whose keys are read up to ``read``, given the checkpoints of its descendants."""
    ahead = {known: offset for known, offset in below.items() if offset > read}
    if not ahead:
        return {task: read}
    parts: dict[VirtualTask, int] = {}
    for child in task.children:
        deeper = {known: offset for known, offset in ahead.items() if known != child and contains(child, known)}
        parts |= _parts(child, max(read, ahead.get(child, 0)), deeper)
    offsets = set(parts.values())
    return {task: offsets.pop()} if len(offsets) == 1 else parts


def unread(parts: Mapping[VirtualTask, int], key: str | None, offset: int) -> bool:
    """Whether a row of the reducer is still to be read by the task that ``parts`` are of.

    Args:
        parts: what ``start_offsets`` gave; tasks without common keys.
        key: key text of the row, or None.
        offset: of the row, at least 0.

    Returns:
        False as well for a row whose bucket is in none of the parts: it is another task's.

    Raises:
        PlanError: as ``bucket_of``.
    """
    _refuse_negative("row", offset)
    return any(offset >= start and bucket_of(key, offset, part.factor) == part.bucket for part, start in parts.items())


def _complete(tasks: Collection[VirtualTask]) -> tuple[int, int]:
    """Reducer and factor of all tasks of a reducer, or a refusal."""
    first = min(tasks, default=None)
    if first is None:
        raise PlanError("virtual tasks", "all tasks of one reducer", "none")
    _refuse_malformed(first)
    # The length first: a factor may be too large to list all its tasks.
    if len(tasks) != first.factor or sorted(tasks) != list(descendants(VirtualTask(first.reducer, 0, 1), first.factor)):
        came = ", ".join(str(task) for task in sorted(tasks))
        raise PlanError("virtual tasks", f"all {first.factor} tasks of reducer {first.reducer}, once each", came[:120])
    return first.reducer, first.factor


def _refuse_malformed(task: VirtualTask) -> None:
    if not task.well_formed:
        raise PlanError("virtual task", "reducer-bucket-factor with bucket < factor = 2**n", repr(str(task)))


def _refuse_negative(where: str, offset: int) -> None:
    if offset < 0:
        raise PlanError(where, "an offset of 0 or more", f"{offset}")
