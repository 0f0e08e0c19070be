"""Files behind the login: our own style sheet, script and icons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, HTTPException, status
from fastapi.responses import FileResponse

from skewless_airflow.web.rendering.template import STATIC
from skewless_airflow.web.security import harden

router = APIRouter()

#: The kinds of files that are served, by suffix.
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@router.get("/static/{path:path}")
def static(path: str) -> Any:
    """A static file."""
    found = harden(_file(STATIC, path))
    found.headers["Cache-Control"] = "private, max-age=600"
    return found


def _file(folder: Path, path: str) -> FileResponse:
    """A file below a folder.

    Raises:
        HTTPException: there is no such file, or the path leads outside of the folder, perhaps through a link.
    """
    missing = HTTPException(status.HTTP_404_NOT_FOUND, "There is no such file.")
    if "\0" in path or "\\" in path:
        raise missing
    root = folder.resolve()
    try:
        found = (root / path).resolve()
        inside = found.is_relative_to(root) and found.is_file()
    except (OSError, RuntimeError, ValueError):  # the name is too long, or links form a circle
        raise missing from None
    if not inside or found.suffix.lower() not in _KINDS:
        raise missing
    return FileResponse(found, media_type=_KINDS[found.suffix.lower()])
