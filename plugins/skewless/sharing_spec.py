"""How several Spark clusters share the stages of a run: where their leases are kept, and how long they last."""

from __future__ import annotations

from pydantic import Field

from skewless.document import Frozen

#: What ``store`` says for a folder of the run directory.
FILES = "files"


class Sharing(Frozen):
    """What holds if a run is shared by several Spark clusters; who they are is said when it is started."""

    store: str = Field(
        default=FILES,
        pattern=rf"^({FILES}|rediss?://[^@#\s]+)$",
        description="Where the leases are kept: files, in a folder of each stage; or the address of a Redis, without "
        "name and password.",
        examples=["redis://leases:6379/0"],
    )
    lease_seconds: float = Field(
        default=8,
        ge=0.2,
        le=3600,
        description="The normal lease: within it a cluster that joins has its share. One that is silent for four times "
        "as long has lost its tasks to the others.",
        examples=[30],
    )
