"""One call of a wrapped `create`: checked, sent, and turned into what the client's library returns.

`ChatCall` is for ``chat.completions.create``, `ResponsesCall` for ``responses.create``.
"""

from __future__ import annotations

from typing import Any

from arkdev.errors import ComesLaterError, PluginError, SamplingParameterError
from arkdev.plugin.access import ModelAccess
from arkdev.plugin.answers import convert_answer, convert_response, translated_error
from arkdev.plugin.client_settings import base_url_of
from arkdev.plugin.conversation import clean_message
from arkdev.plugin.plain import to_plain
from arkdev.plugin.proxy import InferenceProxy
from arkdev.plugin.responses import (
    answer_of_response,
    chat_body_of_responses,
    items_of_messages,
)
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

WRAPPED_HEADER = "x-arkdev-wrapped"
"""Tells the gateway that a call comes from a wrapped client: it is recorded as such."""

_CLIENT_OPTIONS = ("extra_headers", "extra_query", "extra_body", "timeout", "tool_pool")
_UNSET_TYPES = ("NotGiven", "Omit")
_KEY_HEADER = "Authorization"
_RAW_RESPONSE_HEADER = "x-stainless-raw-response"


class Call:
    """What the two kinds of call share."""

    def __init__(self, proxy: InferenceProxy, kwargs: dict[str, Any]) -> None:
        self.proxy = proxy
        self.access = proxy.access
        self._kwargs = {name: value for name, value in kwargs.items() if _is_given(value)}
        extra_body = {
            k: v for k, v in (self._kwargs.get("extra_body") or {}).items() if v is not None
        }
        _refuse_sampling_parameters({**self._kwargs, **extra_body})
        self.timeout_s = _seconds(self._kwargs.get("timeout"))
        given = {k: v for k, v in self._kwargs.items() if k not in _CLIENT_OPTIONS}
        self.body: dict[str, Any] = _plain_body({**given, **extra_body})
        is_stream = bool(self.body.pop("stream", None))
        headers = {str(name).lower() for name in self._kwargs.get("extra_headers") or {}}
        self.keeps_own_way = is_stream or _RAW_RESPONSE_HEADER in headers
        """A stream or a raw response is the client library's own business, over HTTP."""
        if is_stream and self.access is None:
            raise ComesLaterError(
                "a stand-alone proxy cannot record a streamed answer",
                where=callers_place(),
                hint="leave stream out; the whole answer comes at once",
            )

    async def prepare(self, client: Any) -> None:
        """Do what must be awaited before the call is sent."""

    async def answer(self, access: ModelAccess) -> dict[str, Any]:
        """Send the call from an event loop."""
        raise NotImplementedError

    def answer_blocking(self, access: ModelAccess) -> dict[str, Any]:
        """Send the call from synchronous code."""
        raise NotImplementedError

    def convert(self, answer: dict[str, Any], *, client: Any) -> Any:
        """Return the answer in the client library's own class."""
        raise NotImplementedError

    def standalone_kwargs(self) -> dict[str, Any]:
        """Return the arguments with which a stand-alone proxy's client asks its own server."""
        raise NotImplementedError

    def finish_standalone(self, answer: Any) -> Any:
        """Record an answer that the client itself fetched; return what the plugin gets."""
        raise NotImplementedError

    def translated(self, error: Exception, *, client: Any) -> Exception:
        """Return an error as the client library would raise it."""
        return translated_error(error, client=client)

    def gateway_kwargs(self, client: Any) -> dict[str, Any]:
        """Return the arguments for the client's own way, over HTTP to the gateway.

        The call carries this rollout's key: the client's may be of another one that shares it.
        Raises `PluginError` when the client points elsewhere: its calls would not be recorded.
        """
        if base_url_of(client) != self.proxy.url.rstrip("/"):
            raise PluginError(
                f"this call goes over HTTP, and the client's base_url is {base_url_of(client)}, "
                "not this rollout's",
                where=callers_place(),
                hint="build the client with base_url=proxy.url and api_key=proxy.jwt_token",
            )
        given = self._kwargs.get("extra_headers") or {}
        headers = {k: v for k, v in given.items() if str(k).lower() != _KEY_HEADER.lower()}
        headers |= {_KEY_HEADER: f"Bearer {self.proxy.jwt_token}", WRAPPED_HEADER: "1"}
        return {**self._kwargs, "extra_headers": headers}

    def _with_sampling(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Add the sampling parameters that the sample itself sets."""
        extra_body = {**self.proxy.sampling_parameters(), **(self._kwargs.get("extra_body") or {})}
        return {**kwargs, "extra_body": extra_body} if extra_body else kwargs


class ChatCall(Call):
    """A call of ``chat.completions.create``."""

    def __init__(self, proxy: InferenceProxy, kwargs: dict[str, Any]) -> None:
        super().__init__(proxy, kwargs)
        if proxy.is_group:
            raise PluginError(
                "a group rollout calls client.responses.create: its trajectories are named by "
                "response ids, which chat completions do not have",
                where=callers_place(),
            )
        missing = [name for name in ("model", "messages") if name not in kwargs]
        if missing:  # as the client's own create does
            raise TypeError(f"create() is missing the arguments {', '.join(missing)}")
        _check_messages(self.body.get("messages", []))
        self.messages = [clean_message(message) for message in self.body.get("messages", [])]
        self.body["messages"] = self.messages
        self._context_messages: list[Any] | None = None

    async def prepare(self, client: Any) -> None:
        """Do what arkitect's Context does around a chat call, when it was wrapped (X-33)."""
        messages = getattr(getattr(client, "state", None), "messages", None)
        self._context_messages = messages if isinstance(messages, list) else None
        tool_pool = self._kwargs.get("tool_pool")
        if tool_pool is not None:
            self.body["tools"] = [to_plain(tool) for tool in await tool_pool.list_tools()]

    async def answer(self, access: ModelAccess) -> dict[str, Any]:
        """Send the call from an event loop."""
        return await access.complete(self.body, timeout_s=self.timeout_s)

    def answer_blocking(self, access: ModelAccess) -> dict[str, Any]:
        """Send the call from synchronous code."""
        return access.complete_blocking(self.body, timeout_s=self.timeout_s)

    def convert(self, answer: dict[str, Any], *, client: Any) -> Any:
        """Return the answer as the library's ChatCompletion."""
        completion = convert_answer(answer, client=client)
        if self._context_messages is not None:
            self._context_messages.append(to_plain(completion)["choices"][0]["message"])
        return completion

    def standalone_kwargs(self) -> dict[str, Any]:
        """Return the arguments for the client's own `create`, with the sample's sampling."""
        return self._with_sampling({**self._kwargs, "messages": self.messages})

    def finish_standalone(self, answer: Any) -> Any:
        """Record the completion."""
        self.proxy.conversation.add_call(self.messages, to_plain(answer))
        return answer


class ResponsesCall(Call):
    """A call of ``responses.create``. The history of a branch is kept here (GROUP-13)."""

    def __init__(self, proxy: InferenceProxy, kwargs: dict[str, Any]) -> None:
        super().__init__(proxy, kwargs)
        self._previous = self.body.get("previous_response_id")
        self._parent = proxy.responses.node(self._previous)

    async def answer(self, access: ModelAccess) -> dict[str, Any]:
        """Send the call from an event loop."""
        return await access.respond(self.body, timeout_s=self.timeout_s)

    def answer_blocking(self, access: ModelAccess) -> dict[str, Any]:
        """Send the call from synchronous code."""
        return access.respond_blocking(self.body, timeout_s=self.timeout_s)

    def convert(self, answer: dict[str, Any], *, client: Any) -> Any:
        """Return the answer as the library's Response."""
        return convert_response(answer, client=client)

    def standalone_kwargs(self) -> dict[str, Any]:
        """Return the arguments for the client's own `create`: the whole history each time."""
        left_out = ("previous_response_id", "instructions")
        kwargs = {k: v for k, v in self._kwargs.items() if k not in left_out}
        items = items_of_messages(self._chat_body()["messages"])
        return self._with_sampling({**kwargs, "input": items})

    def finish_standalone(self, answer: Any) -> Any:
        """Put the response into the tree under the id that the server gave it."""
        chat = self._chat_body()
        completion = answer_of_response(to_plain(answer))
        tree = self.proxy.responses
        num_instructions = 1 if self.body.get("instructions") else 0
        tree.add(
            self._parent,
            key=tree.next_key(self._parent, body=chat, num_instructions=num_instructions),
            history=chat["messages"],
            answer=completion,
            response_id=answer.id,
            num_instructions=num_instructions,
        )
        self.proxy.conversation.add_call(chat["messages"], completion)
        return answer

    def _chat_body(self) -> dict[str, Any]:
        return chat_body_of_responses(self.body, history=self._parent.messages)


def _is_given(value: Any) -> bool:
    return value is not None and type(value).__name__ not in _UNSET_TYPES


def _seconds(timeout: Any) -> float | None:
    """Return a timeout in seconds; of an `httpx.Timeout` what it allows for the answer."""
    seconds = getattr(timeout, "read", timeout)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise PluginError(
            f"timeout={timeout!r} is no time",
            where=callers_place(),
            hint="give seconds as a number, or an httpx.Timeout",
        )
    return float(seconds)


def _plain_body(given: dict[str, Any]) -> dict[str, Any]:
    try:
        return to_plain(given)  # type: ignore[no-any-return]
    except (TypeError, ValueError, RecursionError) as error:
        raise PluginError(
            f"the request cannot be sent as JSON: {error}", where=callers_place()
        ) from error


def _check_messages(messages: Any) -> None:
    problem = "" if isinstance(messages, list) else f"messages is {messages!r:.80}, not a list"
    for index, message in enumerate(messages if not problem else ()):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            problem = f"messages[{index}] is {message!r:.80}, not a message with a role"
            break
    if problem:
        raise PluginError(
            problem,
            where=callers_place(),
            hint='messages is a list of objects: [{"role": "user", "content": "..."}]',
        )


def _refuse_sampling_parameters(given: dict[str, Any]) -> None:
    refused = [name for name in REFUSED_PARAMETERS if name in given]
    if refused:
        raise SamplingParameterError(
            f"{', '.join(refused)} cannot be set in create() of a wrapped client: in training the "
            "sampling parameters are the job's",
            where=callers_place(),
            hint="set it in the sample (a key of the dataset line) or in the job's hyperparameters",
        )
