"""The five decorators that make a function a plugin (SURFACE DEC).

A decorated function is always awaitable: an ``async def`` runs on the caller's event loop, a plain
``def`` in a thread of its own (DEC-24, DEC-27). Where its parameters are annotated with a contract
record or with a dict, arguments of the other form are converted (CTX-08, Y-06).
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass, field
from enum import Enum
from types import FunctionType, MethodType, SimpleNamespace, UnionType
from typing import Any

from arkdev.errors import PluginSignatureError
from arkdev.plugin.runtime import Runtime
from arkdev.plugin.source import callers_place, innermost, place_of, with_inner
from arkdev.plugin.threads import call_in_thread
from arkdev.types import Record

PLUGIN_ATTRIBUTE = "__arkdev_plugin__"


class PluginKind(str, Enum):
    """The kinds of plugin, by the name of the decorator."""

    SINGLE_ROLLOUT = "single_rollout"
    GROUP_ROLLOUT = "group_rollout"
    SINGLE_GRADER = "single_grader"
    GROUP_GRADER = "group_grader"

    @property
    def is_rollout(self) -> bool:
        """True for the two kinds of rollout."""
        return self in (PluginKind.SINGLE_ROLLOUT, PluginKind.GROUP_ROLLOUT)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The documented parameters, in order."""
        return _PARAMETERS[self]


_PARAMETERS = {
    PluginKind.SINGLE_ROLLOUT: ("context", "proxy", "sample"),
    PluginKind.GROUP_ROLLOUT: ("context", "proxy", "sample", "n_sample"),
    PluginKind.SINGLE_GRADER: ("context", "sample", "trajectory"),
    PluginKind.GROUP_GRADER: ("context", "sample", "trajectories"),
}

# Attributes that tools of the field look for on a decorated function.
_MARKERS = {
    PluginKind.SINGLE_ROLLOUT: ("_is_rollout", "_is_single_rollout"),
    PluginKind.GROUP_ROLLOUT: ("_is_rollout", "_is_group_rollout"),
    PluginKind.SINGLE_GRADER: ("_is_grader", "_is_single_grader"),
    PluginKind.GROUP_GRADER: ("_is_grader", "_is_group_grader"),
}


@dataclass(frozen=True)
class Plugin:
    """What a decorator knows of its function."""

    kind: PluginKind
    name: str
    description: str = ""
    runtime: Runtime = field(default_factory=Runtime)
    place: str = ""
    """file:line of the function."""
    is_async: bool = False
    decorator: str = ""
    """The decorator's name as it was written."""


def plugin_of(function: Any) -> Plugin | None:
    """Return what the decorator recorded on `function`, also through wrappers and partials."""
    for inner in with_inner(function):
        plugin = getattr(inner, PLUGIN_ATTRIBUTE, None)
        if isinstance(plugin, Plugin):
            return plugin
    return None


_Decorated = Callable[..., Awaitable[Any]]


def _runtime(runtime: Any, unknown: dict[str, Any], *, decorator: str) -> Runtime:
    """Return the limits that a decorator was given; a dict stands for a `Runtime`."""
    if unknown:
        names = ", ".join(unknown)
        inside = ", ".join(f"{name}={value!r}" for name, value in unknown.items())
        is_limit = set(unknown) <= set(Runtime.model_fields)
        advice = f"runtime=Runtime({inside})" if is_limit else "name, description and runtime"
        raise PluginSignatureError(
            f"@{decorator} takes no {names}",
            where=callers_place(),
            hint=f"write @{decorator}({advice})" if is_limit else f"it takes {advice}",
        )
    if runtime is None or isinstance(runtime, Runtime):
        return runtime or Runtime()
    if isinstance(runtime, dict):
        return Runtime(**runtime)
    raise PluginSignatureError(
        f"@{decorator} was given runtime={runtime!r}",
        where=callers_place(),
        hint=f"write @{decorator}(runtime=Runtime(timeout=60))",
    )


class _Decorator:
    """One decorator in its three call forms: bare, with ``()``, with arguments (Y-32)."""

    def __init__(self, kind: PluginKind, doc: str, *, name: str = "") -> None:
        self.kind = kind
        self.name = name or kind.value
        self.__doc__ = doc

    @typing.overload
    def __call__(self, function: Callable[..., Any], /) -> _Decorated: ...

    @typing.overload
    def __call__(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        runtime: Runtime | None = None,
    ) -> Callable[[Callable[..., Any]], _Decorated]: ...

    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        runtime: Runtime | dict[str, Any] | None = None,
        **unknown: Any,
    ) -> Any:
        """Decorate `function`, or return a decorator when there is none yet."""
        limits = _runtime(runtime, unknown, decorator=self.name)

        def decorate(target: Callable[..., Any]) -> _Decorated:
            if not callable(target):
                raise PluginSignatureError(
                    f"@{self.name} was given {target!r} in place of a function",
                    where=callers_place(),
                    hint=f"write @{self.name}(name=..., runtime=Runtime(...))",
                )
            plugin = Plugin(
                kind=self.kind,
                name=name or _name_of(target),
                description=description or "",
                runtime=limits,
                place=place_of(target),
                is_async=_is_coroutine_function(target),
                decorator=self.name,
            )
            _check_parameters(target, plugin)
            return _make_callable(target, plugin)

        return decorate if function is None else decorate(function)


def _make_callable(target: Callable[..., Any], plugin: Plugin) -> _Decorated:
    adapt = _Adapter(target)

    @functools.wraps(target, assigned=_assignable(target), updated=())
    async def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = adapt(args, kwargs)
        if plugin.is_async:
            return await target(*args, **kwargs)
        result = await call_in_thread(target, *args, **kwargs)
        # A wrapper that is a plain function around an async one hands back a coroutine (DEC-26).
        return await result if inspect.isawaitable(result) else result

    setattr(call, PLUGIN_ATTRIBUTE, plugin)
    for marker in _MARKERS[plugin.kind]:
        setattr(call, marker, True)
    return call


def _assignable(target: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(name for name in functools.WRAPPER_ASSIGNMENTS if hasattr(target, name))


def _name_of(target: Callable[..., Any]) -> str:
    inner = innermost(target)
    return getattr(inner, "__name__", type(inner).__name__)


def _is_coroutine_function(target: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(type(target).__call__)


def _check_parameters(target: Callable[..., Any], plugin: Plugin) -> None:
    """Raise `PluginSignatureError` when the documented arguments cannot be passed by position."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # a builtin without a signature
        return
    expected = plugin.kind.parameters
    try:
        signature.bind(*expected)
        problem = _misplaced(target, list(signature.parameters), plugin)
    except TypeError as error:
        problem = str(error)
    if not problem:
        return
    names = list(signature.parameters)
    word = "async def" if plugin.is_async else "def"
    hint = f"{word} {plugin.name}({', '.join(expected)}): ..."
    other = next((kind for kind in _PARAMETERS if set(kind.parameters) == {*names}), plugin.kind)
    if other is not plugin.kind:
        hint = f"decorate it with @{other.value}, or write {hint}"
    raise PluginSignatureError(
        f"{plugin.name} takes ({', '.join(names) or 'no parameters'}), but @{plugin.decorator} "
        f"makes it be called with ({', '.join(expected)}): {problem}",
        where=plugin.place,
        hint=hint,
    )


def _misplaced(target: Callable[..., Any], names: list[str], plugin: Plugin) -> str:
    """Say which parameter will get what another one is meant for; "" when none is seen to.

    Names are the user's own; only the documented ones, and the contract's records as annotations,
    tell what is meant.
    """
    hints = dict(_hints(innermost(target)))
    other = _OTHER_GRADER.get(plugin.kind)
    for name, given in zip(names, plugin.kind.parameters, strict=False):
        is_documented = name in plugin.kind.parameters
        is_others = other is not None and name == _PARAMETERS[other][2]
        if name != given and (is_documented or is_others):
            return f"{name} would be given the {given}"
        record = getattr(hints.get(name), "__name__", "")
        if record in _RECORDS and record not in _RECORD_OF.get(given, ()):
            return f"{name} is annotated with {record}, but it would be given the {given}"
    return ""


_OTHER_GRADER = {
    PluginKind.SINGLE_GRADER: PluginKind.GROUP_GRADER,
    PluginKind.GROUP_GRADER: PluginKind.SINGLE_GRADER,
}
_RECORD_OF = {
    "context": ("PluginContext",),
    "proxy": ("InferenceProxy", "RolloutInferenceProxy"),
    "sample": ("ChatCompletionSample",),
    "trajectory": ("Trajectory",),
}
"""The contract's records, by the documented parameter that they annotate."""
_RECORDS = frozenset(record for records in _RECORD_OF.values() for record in records)


class _Adapter:
    """Converts arguments between records and dicts as the function's annotations ask."""

    def __init__(self, target: Callable[..., Any]) -> None:
        self._target = target

    @functools.cached_property
    def _conversions(self) -> dict[str, Callable[[Any], Any]]:
        found = ((name, _conversion(hint)) for name, hint in _hints(innermost(self._target)))
        return {name: convert for name, convert in found if convert is not None}

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self._target).parameters)

    def __call__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not self._conversions:
            return args, kwargs
        positional = (
            self._convert(self._names[i] if i < len(self._names) else "", value)
            for i, value in enumerate(args)
        )
        return tuple(positional), {k: self._convert(k, v) for k, v in kwargs.items()}

    def _convert(self, name: str, value: Any) -> Any:
        convert = self._conversions.get(name)
        return value if convert is None else convert(value)


def _hints(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield (parameter, type) for each annotation that means something at run time.

    One by one: a name imported under TYPE_CHECKING only must not hide the others.
    """
    if not isinstance(function, (FunctionType, MethodType)):
        function = type(function).__call__
    scope = getattr(function, "__globals__", {})
    for name, annotation in getattr(function, "__annotations__", {}).items():
        one: Any = SimpleNamespace(__annotations__={name: annotation})
        try:
            yield from typing.get_type_hints(one, scope).items()
        except Exception:  # noqa: BLE001 (annotations are arbitrary user expressions)
            continue


def _conversion(hint: Any) -> Callable[[Any], Any] | None:
    """Return the converter for one annotation, or None when it asks for neither form."""
    origin = typing.get_origin(hint) or hint
    if origin in (Mapping, MutableMapping):
        return _to_dict
    if isinstance(origin, type) and issubclass(origin, dict):
        return _to_dict
    if isinstance(origin, type) and issubclass(origin, Record):
        record: type[Record] = origin
        return lambda value: record(**value) if isinstance(value, dict) else value
    inner = [convert for arg in typing.get_args(hint) if (convert := _conversion(arg))]
    if len(inner) != 1:
        return None
    item = inner[0]
    if origin in (typing.Union, UnionType):
        return item
    if origin in (list, Sequence, Iterable):
        return lambda value: [item(v) for v in value] if isinstance(value, list) else value
    return None


def _to_dict(value: Any) -> Any:
    return value.model_dump() if isinstance(value, Record) else value


single_rollout = _Decorator(
    PluginKind.SINGLE_ROLLOUT,
    "Mark a rollout: one call makes one trajectory. f(context, proxy, sample) (DEC-03).",
)
rollout = _Decorator(
    PluginKind.SINGLE_ROLLOUT,
    "The older name of `single_rollout`; the same thing (DEC-01).",
    name="rollout",
)
group_rollout = _Decorator(
    PluginKind.GROUP_ROLLOUT,
    "Mark a rollout that makes the n_sample trajectories of a sample in one call (DEC-04).",
)
single_grader = _Decorator(
    PluginKind.SINGLE_GRADER,
    "Mark a grader of one trajectory. f(context, sample, trajectory) (DEC-05).",
)
group_grader = _Decorator(
    PluginKind.GROUP_GRADER,
    "Mark a grader of all trajectories of a sample. f(context, sample, trajectories) (DEC-06).",
)
