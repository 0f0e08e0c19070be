"""Files behind the login: our own style sheet, and the pages that Great Expectations left in a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, HTTPException, status
from fastapi.responses import FileResponse

from skewless_airflow.web.rendering import STATIC
from skewless_airflow.web.run_folders import open_run
from skewless_airflow.web.security import FOREIGN_POLICY, READ_RUN, DagId, RunId, harden
from skewless_airflow.web.views.quality import data_docs_folder

router = APIRouter()

#: What may leave, and as what; a script is none of it.
_KINDS = {
    ".css": "text/css",
    ".gif": "image/gif",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".jpg": "image/jpeg",
    ".otf": "font/otf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
}
_OWN_KINDS = {**_KINDS, ".js": "text/javascript"}


@router.get("/static/{path:path}")
def static(path: str) -> Any:
    """A file of ours."""
    found = harden(_file(STATIC, path, _OWN_KINDS))
    found.headers["Cache-Control"] = "private, max-age=600"
    return found


@router.get("/dags/{dag_id}/runs/{run_id}/quality/docs/{path:path}", dependencies=READ_RUN)
def data_docs(dag_id: DagId, run_id: RunId, path: str) -> Any:
    """A page of Great Expectations' Data Docs, of the attempt that was committed."""
    folder = data_docs_folder(open_run(dag_id, run_id))
    if folder is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "This run has no Data Docs.")
    found = _file(folder, path or "index.html", _KINDS)
    found.headers["Content-Security-Policy"] = FOREIGN_POLICY
    return harden(found)


def _file(folder: Path, path: str, kinds: dict[str, str]) -> FileResponse:
    """A file below a folder, however the path to it is written.

    Raises:
        HTTPException: there is none, or it is elsewhere, also by way of a link.
    """
    missing = HTTPException(status.HTTP_404_NOT_FOUND, "There is no such file.")
    if "\0" in path or "\\" in path:
        raise missing
    root = folder.resolve()
    try:
        found = (root / path).resolve()
        inside = found.is_relative_to(root) and found.is_file()
    except (OSError, RuntimeError, ValueError):  # a name too long, links in a circle
        raise missing from None
    if not inside or found.suffix.lower() not in kinds:
        raise missing
    return FileResponse(found, media_type=kinds[found.suffix.lower()])
