"""The contract's tracing decorators (SURFACE TRACE-06, 08, 09, 14, 18; Y-34).

They keep the signature and the async/sync nature of what they decorate. While nothing is traced
they call the function and do nothing else. `wrap_inplace_trace` is in `plugin.client_tracing`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from arkdev.observe import spans
from arkdev.observe.observed_calls import (
    ObservedFunction,
    Process,
    observed_async_generator,
    observed_generator,
)

_F = TypeVar("_F", bound=Callable[..., Any])

_MONITORED = "__arkdev_monitored__"
_NOT_DATA = ("proxy",)
"""Arguments of plugins that hold a key and no data."""


def observe(  # noqa: PLR0913 (the parameters of cozeloop's decorator of that name)
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    span_type: str | None = None,
    tags: Mapping[str, Any] | None = None,
    baggage: Mapping[str, str] | None = None,
    client: Any = None,
    process_inputs: Process | None = None,
    process_outputs: Process | None = None,
    process_iterator_outputs: Process | None = None,
) -> Any:
    """Record the calls of a function, with or without parentheses.

    `process_inputs` gets ``{"args": args, "kwargs": kwargs}`` and returns what to record,
    `process_outputs` the result (of a generator the list of its items). With
    `process_iterator_outputs` an iterator that the function returns is recorded as it is read.
    `client` is there for files written for cozeloop: who reports is the run's affair.
    """

    def decorated(function: Callable[..., Any]) -> Any:
        return _observed(
            function,
            ObservedFunction(
                name=name or _name_of(function),
                span_type=span_type or "custom",
                tags=dict(tags or {}),
                baggage=dict(baggage or {}),
                process_inputs=process_inputs,
                process_outputs=process_outputs,
                process_iterator_outputs=process_iterator_outputs,
                is_method=_is_method(function),
            ),
        )

    return decorated if func is None else decorated(func)


def trace_monitor(function: _F) -> _F:
    """Record input and output of a rollout or grader in its span (TRACE-06).

    A call that the harness did not make (one plugin that calls another) gets a span of its own.
    Twice on one function is as good as once.
    """
    if getattr(function, _MONITORED, False):
        return function
    described = ObservedFunction(
        name=_name_of(function),
        span_type="plugin",
        process_inputs=functools.partial(_data_of, function),
        plugin=inspect.unwrap(function),
    )
    monitored = _observed(function, described)
    setattr(monitored, _MONITORED, True)
    return monitored  # type: ignore[no-any-return]


def coze_monitor(function: _F) -> _F:
    """Record a rollout or grader as `trace_monitor` does (TRACE-14, X-12).

    A run sends its spans to cozeloop where that is installed and COZELOOP_WORKSPACE_ID and
    COZELOOP_API_TOKEN are set; otherwise nothing is sent there and nothing said.
    """
    return trace_monitor(function)


def _observed(function: Any, described: ObservedFunction) -> Any:
    """Return `function` with its calls recorded."""
    if inspect.isasyncgenfunction(function):
        return observed_async_generator(function, described)
    if inspect.isgeneratorfunction(function):
        return observed_generator(function, described)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def observed_async(*args: Any, **kwargs: Any) -> Any:
            if spans.active() is None:
                return await function(*args, **kwargs)
            with described.open(args, kwargs) as call:
                return call.result(await function(*args, **kwargs))

        return observed_async

    @functools.wraps(function)
    def observed(*args: Any, **kwargs: Any) -> Any:
        if spans.active() is None:
            return function(*args, **kwargs)
        with described.open(args, kwargs) as call:
            return call.returned(function(*args, **kwargs))

    return observed


def _data_of(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return a plugin's arguments by name, without those that are no data."""
    bound = inspect.signature(function).bind(*given["args"], **given["kwargs"])
    return {name: value for name, value in bound.arguments.items() if name not in _NOT_DATA}


def _name_of(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _is_method(function: Callable[..., Any]) -> bool:
    try:
        first = next(iter(inspect.signature(function).parameters), "")
    except (TypeError, ValueError):
        return False
    return first in ("self", "cls")
