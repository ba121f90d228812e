"""The proxy that a rollout is given (SURFACE PROXY).

Inside a run its calls belong to an attempt session, which owns sampling parameters, retries and
the record. A stand-alone ``InferenceProxy(sample, url=..., jwt_token=...)`` in a user's own script
talks to its URL directly and keeps the record itself.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from arkdev.plugin import redirect
from arkdev.plugin.access import ModelAccess
from arkdev.plugin.conversation import Conversation
from arkdev.plugin.plain import plain_messages, to_plain
from arkdev.plugin.redirect import ARK_BASE_URL
from arkdev.plugin.response_tree import ResponseTree
from arkdev.types import ChatCompletionMessage, ChatCompletionSample, CompletionUsage

SAMPLING_FIELDS = ("max_new_tokens", "temperature", "top_p", "top_k", "thinking")
"""Sampling parameters that a sample may carry (ROLL-20..26); `n` is the number of rollouts."""

_STANDALONE_WIRE_NAMES = {"max_new_tokens": "max_tokens"}


class Mode(str, Enum):
    """What a proxy is for. The documents name one mode (PROXY-03)."""

    Inference = "inference"


class InferenceProxy:
    """Clients for the model, and the trajectory that their calls make.

    `url` and `jwt_token` are the base URL and the key for a raw client; `headers` go into its
    `extra_headers` and may be replaced; `messages`, `usage` and `finish_reason` are the
    trajectory's so far.
    """

    def __init__(
        self,
        sample: ChatCompletionSample | dict[str, Any],
        url: str = ARK_BASE_URL,
        jwt_token: str = "",
        mode: Mode | str = Mode.Inference,
        *,
        access: ModelAccess | None = None,
        is_group: bool = False,
    ) -> None:
        self.sample = ChatCompletionSample(**sample) if isinstance(sample, dict) else sample
        self.mode = Mode(mode)
        self.access = access
        self.is_group = is_group
        own = (access.url, access.jwt_token) if access else redirect.address(url, jwt_token)
        self.url, self.jwt_token = own
        self.headers: dict[str, str] = {}
        self._chat = Conversation()
        self.responses = access.responses if access else ResponseTree()

    @property
    def conversation(self) -> Conversation:
        """The trajectory so far."""
        return self.access.conversation if self.access is not None else self._chat

    @property
    def messages(self) -> list[ChatCompletionMessage]:
        """The trajectory's messages: what the last call saw, and its answer."""
        return self.conversation.messages

    @property
    def usage(self) -> CompletionUsage | None:
        """Token counts over the calls so far; None before the first."""
        return self.conversation.usage

    @property
    def finish_reason(self) -> str | None:
        """Finish reason of the last answer."""
        return self.conversation.finish_reason

    def rollout_client(self) -> Any:
        """Return an `openai.OpenAI` whose chat and Responses calls belong to this rollout."""
        return _clients().sync_client(self)

    def async_rollout_client(self) -> Any:
        """Return an `openai.AsyncOpenAI` whose chat and Responses calls belong to this rollout."""
        return _clients().async_client(self)

    def get_extra_body(self) -> dict[str, Any]:
        """Return what a raw client must send in `extra_body`.

        Stand-alone these are the sampling parameters that the sample sets; in a run the session
        adds them, and there is nothing to send.
        """
        if self.access is not None:
            return {}
        return self.sampling_parameters()

    def sampling_parameters(self) -> dict[str, Any]:
        """Return the sampling parameters that the sample itself sets, under their wire names."""
        given = self.sample.model_fields_set.intersection(SAMPLING_FIELDS)
        values = {name: to_plain(getattr(self.sample, name)) for name in sorted(given)}
        return {
            _STANDALONE_WIRE_NAMES.get(name, name): value
            for name, value in values.items()
            if value is not None and not (name == "top_k" and value == 0)
        }

    def update_state_from_messages(
        self, messages: list[Any], previous_response_id: str | None = None
    ) -> str | None:
        """Tell the proxy of messages that it has not seen.

        In a single rollout these are the whole history that is about to be sent (PROXY-11); where
        it differs from what the proxy knows, the record is cut at the first difference.

        In a group rollout, or with `previous_response_id`, they are the increment after that
        response (None: the beginning). They are not trained on. Returns the id to branch from or
        to return as a trajectory (PROXY-12, Y-14).
        """
        increment = plain_messages(messages)
        if self.is_group or previous_response_id is not None:
            owner = self.access or self.responses
            return owner.insert(increment, previous_response_id=previous_response_id)
        owner_of_history = self.access or self.conversation
        owner_of_history.set_history(increment)
        return None

    def process_completion(self, completion: Any) -> None:
        """Hand the model's answer to a raw call back to the proxy (PROXY-13)."""
        answer = to_plain(completion)
        if self.access is not None:
            self.access.acknowledge(answer)
        else:
            self.conversation.add_call(self.conversation.plain_messages, answer)


RolloutInferenceProxy = InferenceProxy
"""The name under which rollouts annotate their proxy (PROXY, ROLL-03)."""


def _clients() -> Any:
    """Load the module that imports openai, the slow import of a rollout, when it is needed."""
    from importlib import import_module  # noqa: PLC0415

    return import_module("arkdev.plugin.clients")
