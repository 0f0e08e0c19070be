"""A step under a lease: one attempt at a time works on it, and an attempt that lost its lease cannot commit."""

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from fsspec.implementations.local import LocalFileSystem

from skewless.errors import LostRaceError
from skewless.run.directory import Fence, RunDirectory
from skewless.run.folder import is_object
from skewless.run.step_times import timed
from skewless_leases import FencedOutError, Lease, TimeSpans, commit, read

log = logging.getLogger(__name__)

Outcome = TypeVar("Outcome")
#: The lease of a step is below its folder, so that whoever removes the folder to repeat the step removes it too.
OWNER = "owner"
#: Committed as the lease is given back, if the step has its COMMIT.json: once that is removed, it can be repeated.
_NOBODY = ""
#: Characters of the host name in the name of a lease's holder, enough to recognize the machine.
_HOST_CHARACTERS = 40


def once(
    run: RunDirectory, step: str, committed: Callable[[], Outcome | None], work: Callable[[Fence | None], Outcome]
) -> Outcome:
    """The outcome of a step, which is done now, under its lease, unless it is committed already.

    Args:
        committed: the outcome that is committed, by whichever attempt; None if none is.
        work: does the step and commits it, under a fence.
    """
    if (outcome := committed()) is not None:
        return outcome
    with ExitStack() as held:
        with timed("take the lease"):
            fence = held.enter_context(leased_step(run, step))
        # The previous holder of the lease may have committed the step.
        outcome = committed()
        try:
            return work(fence) if outcome is None else outcome
        except LostRaceError as err:
            log.warning("%s", err)
            if (outcome := committed()) is None:
                raise
            return outcome


@contextmanager
def leased_step(run: RunDirectory, step: str) -> Iterator[Fence | None]:
    """Hold the lease of a step. This waits while another living attempt holds it.

    The previous holder may have committed the step in the meantime: check that again inside the block.

    Yields:
        The fence for the attempt that may commit. It is None if the run directory's file system has no leases: then the
        first attempt to commit wins.
    """
    if not has_leases(run):
        yield None
        return
    name = f"{socket.gethostname()[:_HOST_CHARACTERS]}-{os.getpid()}"
    spans = TimeSpans.around(run.job().spec.sharing.lease_seconds)
    with Lease(address_of_leases(run, f"{step}/{OWNER}"), step, name, spans) as lease:
        if before := read(lease.store, step).value:
            run.finish_admitted(step, before)
        yield _StepFence(run, step, lease)
        if run.exists(f"{step}/COMMIT.json"):
            lease.last_value = _NOBODY


def address_of_leases(run: RunDirectory, folder: str) -> str:
    """The address of a store of leases of a run, in a folder below its directory."""
    return f"{run.root}/{folder}" if isinstance(run.fs, LocalFileSystem) else run.path(folder)


def has_leases(run: RunDirectory) -> bool:
    """Whether leases can be kept in the run directory: in files, or as objects of a store."""
    return isinstance(run.fs, LocalFileSystem) or is_object(str(run))


class _StepFence:
    def __init__(self, run: RunDirectory, step: str, lease: Lease) -> None:
        self._run, self._step, self._lease = run, step, lease

    def admit(self, attempt: str) -> None:
        try:
            commit(self._lease.store, self._lease.grant, attempt)
        except FencedOutError as err:
            if not self._run.exists(f"{self._step}/COMMIT.json"):
                raise
            raise LostRaceError(err.where, err.required, err.came, err.hint) from err
