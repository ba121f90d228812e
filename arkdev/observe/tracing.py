"""The contract's tracing names (SURFACE TRACE). For now they pass through and say so once.

They keep the signature and the async/sync nature of what they decorate, so that files which use
them run unchanged.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

_logger = logging.getLogger("arkdev.tracing")
_F = TypeVar("_F", bound=Callable[..., Any])


@functools.cache
def _say_once(name: str) -> None:
    _logger.info("%s passes through: nothing is traced yet", name)


def observe(_function: Any = None, /, **_options: Any) -> Any:
    """Pass a function through, with or without parentheses (TRACE-08, TRACE-09, Y-34)."""
    _say_once("observe")
    return _function if callable(_function) else _unchanged


def trace_monitor(function: _F) -> _F:
    """Pass a rollout or grader through (TRACE-06)."""
    _say_once("trace_monitor")
    return function


def coze_monitor(function: _F) -> _F:
    """Pass a rollout or grader through (TRACE-14, X-12)."""
    _say_once("coze_monitor")
    return function


def wrap_inplace_trace(client: Any, **_options: Any) -> Any:
    """Pass a client through (TRACE-07, Y-33)."""
    _say_once("wrap_inplace_trace")
    return client


def _unchanged(function: _F) -> _F:
    return function
