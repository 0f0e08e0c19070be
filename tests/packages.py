"""The packages that Skewless needs, without Skewless itself: for tests of how it is installed."""

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
