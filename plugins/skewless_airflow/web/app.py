"""The app: routes behind a login; every error is answered in one sentence."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from starlette.exceptions import HTTPException

from skewless.errors import RunDirectoryError, SkewlessError
from skewless_airflow.web import api, pages
from skewless_airflow.web.rendering.template import STATIC, page
from skewless_airflow.web.security import LOGIN, harden

log = structlog.get_logger(__name__)

#: The files that are served, with their kinds; a path that is no name of one leads nowhere.
_FILES = {
    "skewless.css": "text/css", "refresh.js": "text/javascript", "icon.svg": "image/svg+xml",
    "icon-dark.svg": "image/svg+xml",
}  # fmt: skip
_SENTENCES = {
    HTTPStatus.UNAUTHORIZED: "Log in to Airflow first.",
    HTTPStatus.FORBIDDEN: "You have no permission to read this.",
    HTTPStatus.NOT_FOUND: "There is no such page.",
}


def create_app() -> FastAPI:
    """The app that Airflow mounts."""
    app = FastAPI(
        title="Skewless", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, dependencies=LOGIN
    )
    app.add_api_route("/static/{path:path}", static)
    app.include_router(api.router)
    app.include_router(pages.router)
    # Every other address is not found, and no one without a login learns even that.
    app.add_api_route("/{_:path}", _nothing, methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(SkewlessError, _unreadable)
    app.add_exception_handler(Exception, _broken)
    return app


def static(path: str) -> Any:
    """A static file."""
    if path not in _FILES:
        raise HTTPException(HTTPStatus.NOT_FOUND, "There is no such file.")
    found = harden(FileResponse(STATIC / path, media_type=_FILES[path]))
    found.headers["Cache-Control"] = "private, max-age=600"
    return found


def _nothing() -> None:
    raise HTTPException(HTTPStatus.NOT_FOUND)


def _refused(request: Request, err: Exception) -> Any:
    status = HTTPStatus(getattr(err, "status_code", HTTPStatus.INTERNAL_SERVER_ERROR))
    said = str(getattr(err, "detail", ""))
    own = said if said and said != status.phrase and status not in {401, 403} else ""
    return _answer(request, status, own or _SENTENCES.get(status, f"{status.phrase}."), getattr(err, "headers", None))


def _not_understood(request: Request, err: Exception) -> Any:
    fault = err.errors()[0] if isinstance(err, RequestValidationError) else {"loc": ("address",), "msg": "bad"}
    where = fault["loc"][-1]
    return _answer(
        request, HTTPStatus.UNPROCESSABLE_ENTITY, f"The {where} in the address cannot be read: {fault['msg']}."
    )


def _unreadable(request: Request, err: Exception) -> Any:
    status = HTTPStatus.NOT_FOUND if isinstance(err, RunDirectoryError) else HTTPStatus.INTERNAL_SERVER_ERROR
    return _answer(request, status, str(err))


def _broken(request: Request, err: Exception) -> Any:
    """An unexpected error: the log has the traceback, the page has a sentence."""
    log.error("a page failed", path=request.url.path, kind=type(err).__name__)
    sentence = "Skewless could not make this page; see the log of the API server."
    return _answer(request, HTTPStatus.INTERNAL_SERVER_ERROR, sentence)


def _answer(request: Request, status: HTTPStatus, sentence: str, headers: dict[str, str] | None = None) -> Any:
    if api.is_asked(request):
        return harden(JSONResponse({"error": sentence}, status.value, headers))
    found = page(request, "error.html", status_code=status.value, sentence=sentence, phrase=status.phrase)
    found.headers.update(headers or {})
    return found
