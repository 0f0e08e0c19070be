"""A step of a run under a lease: one attempt at a time, and no commit by one that was succeeded while it slept."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fsspec.implementations.local import LocalFileSystem

from skewless.errors import LostRaceError
from skewless.run.attempt import Fence
from skewless.run.directory import RunDirectory
from skewless.spec.clusters import FILES, Sharing
from skewless_leases import FencedOutError, Lease, LeaseError, TimeSpans

#: Below a step's folder: who is at it. With the step's files it goes, if somebody removes them to have it done anew.
OWNER = "owner"
#: Who was let through, once the step has its commit: if somebody removes that, the step is to be done anew.
_NOBODY = ""
#: Of a machine's name, in the names of those who hold leases: enough to know it by.
_HOST_CHARACTERS = 40


@contextmanager
def leased_step(run: RunDirectory, step: str) -> Iterator[Fence | None]:
    """Hold a step; waits while another attempt that is alive holds it.

    When it is held, the step may have been committed by whoever held it before: look again.

    Args:
        run: the run directory, prepared.
        step: its folder below that.

    Yields:
        What an attempt has to be given to be the one that may commit; None where the run directory's file system has
        no leases and the spec names no Redis: there the first attempt to commit wins.

    Raises:
        LeaseError: the lease cannot be kept.
        DocumentError: an attempt was let through, and its manifest cannot be read.
    """
    sharing = run.job().spec.sharing
    if sharing.store == FILES and not isinstance(run.fs, LocalFileSystem):
        yield None
        return
    name = f"{socket.gethostname()[:_HOST_CHARACTERS]}-{os.getpid()}"
    spans = TimeSpans.around(sharing.lease_seconds)
    with Lease(address_of_leases(run, f"{step}/{OWNER}", sharing), step, name, spans) as lease:
        if before := lease.committed():
            run.finish_admitted(step, before)
        yield _StepFence(run, step, lease)
        if run.exists(f"{step}/COMMIT.json"):
            with suppress(LeaseError):  # the step is done, whoever holds it by now
                lease.commit(_NOBODY)


def address_of_leases(run: RunDirectory, folder: str, sharing: Sharing) -> str:
    """Where leases of a run are.

    Args:
        run: the run directory, of a local or shared file system if they are in files.
        folder: which of its leases: below the run directory, or in the name of a set of records in Redis.
        sharing: what the spec says of them.
    """
    if sharing.store != FILES:
        # One Redis for many runs: each has its own sets, whatever the path of its directory.
        place = hashlib.sha256(run.path("").encode()).hexdigest()[:24]
        return f"{sharing.store}#{place}/{folder}"
    return f"{run.root}/{folder}"


class _StepFence:
    """The fence of a step, while its lease is held."""

    def __init__(self, run: RunDirectory, step: str, lease: Lease) -> None:
        self._run, self._step, self._lease = run, step, lease

    def admit(self, attempt: str) -> None:
        """Let an attempt through if its lease still holds.

        Raises:
            LostRaceError: it does not, and another attempt has committed.
            FencedOutError: it does not, and none has yet.
        """
        try:
            self._lease.commit(attempt)
        except FencedOutError as err:
            if not self._run.exists(f"{self._step}/COMMIT.json"):
                raise
            raise LostRaceError(err.where, err.required, err.came, err.hint) from err
