"""Errors that say themselves what to do, without the frames of arkdev above them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from arkdev.errors import ArkdevError

_P = ParamSpec("_P")
_T = TypeVar("_T")


def with_short_tracebacks(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Wrap what tests call: of an `ArkdevError` pytest shows the test's line, message and hint."""

    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        __tracebackhide__ = True  # pytest leaves such frames out
        try:
            return function(*args, **kwargs)
        except ArkdevError as error:
            if error.hint:
                error.add_note(f"hint: {error.hint}")
            raise error.with_traceback(None) from None

    return called
