"""An archive of the classes that Spark loads: a driver's JVM that has it starts with half the work.

The first run of an installation has its JVM write the archive when it ends, and later runs use it. It belongs to one
Java and one Spark. The JVM itself checks that it fits, and does without it where it does not; but it crashes on one
that was cut, so an archive has its size in its name, and one JVM has tried it before it gets that name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pyspark

#: ``off`` if no archive is to be made or used.
SETTING = "SKEWLESS_CLASS_ARCHIVE"
#: A JVM takes seconds to write an archive. One that was to write it and has not after this long was killed.
WRITTEN_SECONDS, GIVEN_UP_SECONDS = 60.0, 3600.0
#: An archive has nearly 200 MB. One that was not used for this long is removed when another one is made.
KEPT_SECONDS = 30 * 24 * 3600.0
#: Variables with options of a JVM. Where they speak of an archive, it is not ours to choose.
_OTHERS = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_ABOUT_ARCHIVES = ("SharedArchive", "ArchiveClasses", "-Xshare")
#: The JVM's messages about archives go to standard output.
_SILENT = "-Xlog:disable"


def java_options(now: float | None = None) -> list[str]:
    """The options of a JVM that is about to start: to use the archive, or to write it; none where neither can be done.

    Args:
        now: the time, in seconds since 1970.
    """
    now = time.time() if now is None else now
    java = _java()
    # The archive of Java's own classes, on top of which ours is; only a HotSpot JVM has one.
    base = java.parents[1] / "lib" / "server" / "classes.jsa" if java else None
    told = " ".join(os.environ.get(name, "") for name in _OTHERS)
    if any(sign in told for sign in _ABOUT_ARCHIVES) or os.environ.get(SETTING) == "off":
        return []
    if java is None or base is None or not base.exists():
        return []
    try:
        return _options(_archive(base), java, now)
    except OSError:
        return []  # a home that cannot be written


def _options(archive: Path, java: Path, now: float) -> list[str]:
    if any(sign.isspace() or sign in "\"'\\" for sign in str(archive)):
        return []
    archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = archive.with_suffix(".draft")
    age = now - draft.stat().st_mtime if draft.exists() else GIVEN_UP_SECONDS
    if age >= WRITTEN_SECONDS and draft.exists() and draft.stat().st_size:
        _adopt(draft, archive, java)
    for found in archive.parent.glob(f"{archive.stem}-*.jsa"):
        # A JVM crashes on an archive that was cut.
        if found.name == _sized(archive, found).name:
            os.utime(found, (now, now))
            return [_SILENT, f"-XX:SharedArchiveFile={found}"]
        found.unlink()
    if draft.exists() and age < GIVEN_UP_SECONDS:
        return []  # another JVM is to write it
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    os.utime(draft, (now, now))
    for other in archive.parent.glob("spark-*"):
        with suppress(FileNotFoundError):
            if now - other.stat().st_mtime > KEPT_SECONDS:
                other.unlink()
    return [_SILENT, f"-XX:ArchiveClassesAtExit={draft}"]


def _adopt(draft: Path, archive: Path, java: Path) -> None:
    """Give a draft its name, unless the JVM that wrote it was killed or had no space: then it is removed."""
    command = [str(java), _SILENT, f"-XX:SharedArchiveFile={draft}", "-XX:ErrorFile=/dev/null", "-version"]
    if subprocess.run(command, capture_output=True, check=False).returncode:  # noqa: S603  # the Java of this user
        draft.unlink()
        return
    draft.chmod(0o600)
    draft.replace(_sized(archive, draft))


def _sized(archive: Path, file: Path) -> Path:
    return archive.with_name(f"{archive.stem}-{file.stat().st_size}.jsa")


def _archive(base: Path) -> Path:
    """The place of the archive for this Java and this Spark, but for its size."""
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    fitting = f"{base}\n{base.stat().st_mtime_ns}\n{home}\n{pyspark.__version__}"
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "skewless" / f"spark-{hashlib.sha256(fitting.encode()).hexdigest()[:16]}.jsa"


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        return Path(home) / "bin" / "java"
    command = shutil.which("java")
    return Path(command).resolve() if command else None
