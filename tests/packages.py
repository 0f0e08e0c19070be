"""Packages: those that Skewless needs without Skewless itself, and somebody's own that brings aggregates or mappers."""

from __future__ import annotations

import sysconfig
from pathlib import Path


def dependencies_alone(folder: Path) -> Path:
    """Fill a new folder with links to all installed packages but this one; no ``.pth`` file leads to the checkout."""
    folder.mkdir()
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if "skewless" not in package.name and package.suffix != ".pth":
            (folder / package.name).symlink_to(package)
    return folder


def install(folder: Path, name: str, code: str, **entry_points: str) -> Path:
    """What an installer leaves of a package of one module.

    Args:
        folder: where packages are, to be put on the path of Python; it is made.
        name: of the package and its module.
        code: the module.
        entry_points: by the group behind ``skewless.``, what is registered as ``name = attribute``, one a line.
    """
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = [f"[skewless.{group}]\n{lines}\n" for group, lines in entry_points.items()]
    (info / "entry_points.txt").write_text("".join(groups))
    return folder
