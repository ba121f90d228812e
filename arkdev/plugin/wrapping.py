"""Making a chat client training-aware, in place (SURFACE PROXY-22, PROXY-23, ROLL-39).

By duck typing: whatever has ``chat.completions.create`` can be wrapped, so OpenAI, AsyncOpenAI,
Ark, AsyncArk and arkitect's Context all work, and none of them is imported here. Wrapping twice
changes nothing. One client may be wrapped by the proxies of many concurrent rollouts: each call
belongs to the proxy that the calling task or thread wrapped it with.
"""

from __future__ import annotations

import contextvars
import weakref
from collections.abc import Callable
from typing import Any

from arkdev.errors import ComesLaterError, PluginError, SamplingParameterError
from arkdev.plugin.answers import convert_answer, translated_error
from arkdev.plugin.conversation import clean_message
from arkdev.plugin.plain import to_plain
from arkdev.plugin.proxy import InferenceProxy
from arkdev.plugin.source import callers_place

REFUSED_PARAMETERS = (
    "n",
    "max_new_tokens",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "top_p",
    "top_k",
    "temperature",
    "thinking",
    "seed",
    "stop",
    "repetition_penalty",
)
"""Not allowed in create() of a wrapped client, nor in its extra_body (ROLL-39, decision 12)."""

_CLIENT_OPTIONS = ("extra_headers", "extra_query", "extra_body", "timeout", "tool_pool")
_UNSET_TYPES = ("NotGiven", "Omit")


def wrap_client_inplace(client: Any, proxy: InferenceProxy) -> Any:
    """Make the chat calls of a synchronous client belong to `proxy`; returns the client."""
    return _wrap(client, proxy, is_async=False)


def wrap_async_client_inplace(client: Any, proxy: InferenceProxy) -> Any:
    """Make the chat calls of an asynchronous client belong to `proxy`; returns the client."""
    return _wrap(client, proxy, is_async=True)


def _wrap(client: Any, proxy: InferenceProxy, *, is_async: bool) -> Any:
    completions: Any = getattr(getattr(client, "chat", None), "completions", None)
    create = getattr(completions, "create", None)
    if create is None:
        raise PluginError(
            f"{type(client).__name__} has no chat.completions.create to wrap",
            where=callers_place(),
            hint="pass an OpenAI, AsyncOpenAI, Ark or AsyncArk client",
        )
    _check_client(client, is_async=is_async)
    tracked = getattr(create, "tracked", None)
    if tracked is None:
        tracked = _TrackedCreate(client, create)
        completions.create = tracked.async_create() if is_async else tracked.sync_create()
    tracked.bind(proxy)
    return client


def _check_client(client: Any, *, is_async: bool) -> None:
    """Refuse a client of the other sort, where its class tells."""
    bases = type(client).__mro__
    if not is_async and any(base.__name__.startswith("Async") for base in bases):
        raise PluginError(
            f"wrap_client_inplace was given an asynchronous client, {type(client).__name__}",
            where=callers_place(),
            hint="use wrap_async_client_inplace, and await create()",
        )
    if is_async and any(base.__name__ in ("OpenAI", "Ark") for base in bases):
        raise PluginError(
            f"wrap_async_client_inplace was given a synchronous client, {type(client).__name__}",
            where=callers_place(),
            hint="use wrap_client_inplace",
        )


class _TrackedCreate:
    """The `create` of one client, and the proxies that it works for."""

    def __init__(self, client: Any, original: Callable[..., Any]) -> None:
        self._client = client
        self._original = original
        self._current: contextvars.ContextVar[InferenceProxy] = contextvars.ContextVar("proxy")
        self._proxies: weakref.WeakSet[InferenceProxy] = weakref.WeakSet()

    def bind(self, proxy: InferenceProxy) -> None:
        """Let the calls of the current task or thread belong to `proxy`."""
        self._current.set(proxy)
        self._proxies.add(proxy)

    def sync_create(self) -> Callable[..., Any]:
        """Return the function that replaces a synchronous `create`."""

        def create(*args: Any, **kwargs: Any) -> Any:
            call = self._call(args, kwargs)
            if call.access is None:
                return call.finish_standalone(self._original(**call.standalone_kwargs()))
            try:
                answer = call.access.complete_blocking(call.body, timeout_s=call.timeout_s)
            except Exception as error:
                raise translated_error(error, client=self._client) from error
            return convert_answer(answer, client=self._client)

        create.tracked = self  # type: ignore[attr-defined]
        return create

    def async_create(self) -> Callable[..., Any]:
        """Return the coroutine function that replaces an asynchronous `create`."""

        async def create(*args: Any, **kwargs: Any) -> Any:
            call = self._call(args, kwargs)
            context = _ArkitectContext(self._client, kwargs)
            await context.add_tools(call.body)
            if call.access is None:
                answer = await self._original(**call.standalone_kwargs())
                return call.finish_standalone(answer)
            try:
                body = await call.access.complete(call.body, timeout_s=call.timeout_s)
            except Exception as error:
                raise translated_error(error, client=self._client) from error
            completion = convert_answer(body, client=self._client)
            context.add_answer(completion)
            return completion

        create.tracked = self  # type: ignore[attr-defined]
        return create

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        if args:
            raise PluginError("create() takes keyword arguments only", where=callers_place())
        return _Call(self._proxy(), kwargs)

    def _proxy(self) -> InferenceProxy:
        try:
            return self._current.get()
        except LookupError:
            if len(self._proxies) == 1:
                return next(iter(self._proxies))
        raise PluginError(
            f"this client is wrapped for {len(self._proxies)} rollouts and the call comes from a "
            "thread or task that belongs to none of them",
            where=callers_place(),
            hint="use a client of its own for each rollout (proxy.rollout_client()), or run the "
            "thread in contextvars.copy_context()",
        )


class _Call:
    """One call of a wrapped `create`, checked."""

    def __init__(self, proxy: InferenceProxy, kwargs: dict[str, Any]) -> None:
        self.proxy = proxy
        self.access = proxy.access
        self._kwargs = {name: value for name, value in kwargs.items() if _is_given(value)}
        extra_body = {
            k: v for k, v in (self._kwargs.get("extra_body") or {}).items() if v is not None
        }
        _refuse_sampling_parameters({**self._kwargs, **extra_body})
        if self._kwargs.get("stream"):
            raise ComesLaterError(
                "streaming through a wrapped client is not built yet",
                where=callers_place(),
                hint="leave stream out; the whole answer comes at once",
            )
        self.timeout_s = _seconds(self._kwargs.get("timeout"))
        given = {k: v for k, v in self._kwargs.items() if k not in _CLIENT_OPTIONS}
        self.body: dict[str, Any] = to_plain({**given, **extra_body})
        self.messages = [clean_message(message) for message in self.body.get("messages", [])]
        self.body["messages"] = self.messages
        self.body.pop("stream", None)

    def standalone_kwargs(self) -> dict[str, Any]:
        """Return the arguments for the client's own `create`, with the sample's sampling."""
        extra_body = {**self.proxy.sampling_parameters(), **(self._kwargs.get("extra_body") or {})}
        kwargs = {**self._kwargs, "messages": self.messages}
        return {**kwargs, "extra_body": extra_body} if extra_body else kwargs

    def finish_standalone(self, completion: Any) -> Any:
        """Record an answer that the client itself fetched."""
        self.proxy.conversation.add_call(self.messages, to_plain(completion))
        return completion


class _ArkitectContext:
    """What arkitect's Context does around a chat call, for the Context that was wrapped (X-33)."""

    def __init__(self, client: Any, kwargs: dict[str, Any]) -> None:
        self._state = getattr(client, "state", None)
        self._tool_pool = kwargs.get("tool_pool")

    async def add_tools(self, body: dict[str, Any]) -> None:
        """Offer the tools of the Context's pool."""
        if self._tool_pool is not None:
            body["tools"] = [to_plain(tool) for tool in await self._tool_pool.list_tools()]

    def add_answer(self, completion: Any) -> None:
        """Append the answer to the Context's own messages."""
        messages = getattr(self._state, "messages", None)
        if isinstance(messages, list):
            messages.append(to_plain(completion)["choices"][0]["message"])


def _is_given(value: Any) -> bool:
    return value is not None and type(value).__name__ not in _UNSET_TYPES


def _refuse_sampling_parameters(given: dict[str, Any]) -> None:
    refused = [name for name in REFUSED_PARAMETERS if name in given]
    if refused:
        raise SamplingParameterError(
            f"{', '.join(refused)} cannot be set in create() of a wrapped client: in training the "
            "sampling parameters are the job's",
            where=callers_place(),
            hint="set it in the sample (a key of the dataset line) or in the job's hyperparameters",
        )


def _seconds(timeout: Any) -> float | None:
    return float(timeout) if isinstance(timeout, (int, float)) else None
