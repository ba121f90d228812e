"""Faults while a request is answered: the client is told, the server says one line and goes on."""

from __future__ import annotations

import logging
import os
from asyncio import InvalidStateError

from aiohttp import http_exceptions, web  # noqa: TID253 - only the servers import this leaf

from arkdev.endpoints.serving.requests import RequestError

logger = logging.getLogger("arkdev.serving")
"""Also for the HTTP library."""

_CLIENTS_OWN = (web.RequestPayloadError, http_exceptions.HttpProcessingError)
"""What a client sent is no HTTP: it is told, and nobody else."""


def fault(error: Exception) -> RequestError:
    """Return what a client is told of an error that nobody expected, and report it."""
    logger.error("a request could not be answered", exc_info=error)
    return RequestError(
        f"A fault in the server: {type(error).__name__}: {error}.",
        code="InternalServiceError",
        status=500,
    )


def _in_one_line(record: logging.LogRecord) -> bool:
    """Put an exception into the message; tracebacks are for ``arkdev --debug``."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, _CLIENTS_OWN):
        return False
    if isinstance(error, InvalidStateError) and record.module == "web_protocol":
        return False  # the library's own, of a request that ends just as the server stops
    if error is not None and os.environ.get("ARKDEV_DEBUG", "") in ("", "0"):
        said = " ".join(str(error).split())
        record.msg, record.args = f"{record.getMessage()}: {type(error).__name__}: {said}", ()
        record.exc_info = None
    return True


logger.addFilter(_in_one_line)
