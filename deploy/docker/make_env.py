"""``python deploy/docker/make_env.py [FILE]``: writes ``.env`` with a random secret for each name of ``.env.example``.

A name that has a value there already keeps it, so it may be run after every upgrade. The file is readable
by its owner only. Standard library only: it runs before anything is installed.
"""

import base64
import os
import secrets
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
EXAMPLE = PROJECT / ".env.example"
#: A Fernet key is this many bytes in URL-safe base 64; the others may be anything as long.
SECRET_BYTES = 32


def names(example: str) -> list[str]:
    """The names that need a value: the lines ``NAME=``, in order."""
    return [line.removesuffix("=") for line in example.splitlines() if line.endswith("=") and line[0] not in "# "]


def missing(example: str, held: str) -> list[str]:
    """The names of the example that a file does not give a value to."""
    given = {name for name, _, value in (line.partition("=") for line in held.splitlines()) if value}
    return [name for name in names(example) if name not in given]


def secret() -> str:
    """A new secret, fit for a URL and for a Fernet key."""
    return base64.urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def main(target: Path) -> int:
    """Add what is missing."""
    held = target.read_text(encoding="utf-8") if target.exists() else ""
    wanted = missing(EXAMPLE.read_text(encoding="utf-8"), held)
    if wanted:
        kept = [line for line in held.splitlines() if line.rstrip("=") not in wanted]
        draft = target.with_name(f"{target.name}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in [*kept, *(f"{name}={secret()}" for name in wanted)])
        draft.replace(target)
    sys.stderr.write(f"{target}: {len(wanted)} secrets written, all others kept\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT / ".env"))
