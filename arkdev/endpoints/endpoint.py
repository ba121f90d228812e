"""The endpoint seam: where completions come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from arkdev.endpoints.call_clock import CallClock


@dataclass(frozen=True)
class ModelRequest:
    """One Chat Completions request on its way to an endpoint.

    `body` is plain JSON in the OpenAI form: ``messages``, ``tools``, ``tool_choice``,
    ``response_format``, … but no sampling parameters; those are in `sampling` under the contract's
    names (``max_new_tokens``, ``temperature``, ``top_p``, ``top_k``, ``thinking``, ``stop``,
    ``repetition_penalty``), and the endpoint writes them under its own wire names
    (`endpoints.parameters`). `seed` is an integer that fixes a scripted answer.
    `scope` tells conversations apart: an answer goes on from tokens that the same scope was given.
    `previous_response_id` is the ``id`` of the answer that is continued, where that is known. Both
    are for endpoints that remember the tokens of their answers; neither is ever sent.
    `clock` is stopped while the request waits for a limit of ours.
    """

    body: dict[str, Any]
    sampling: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    scope: str = ""
    clock: CallClock = field(default_factory=CallClock, compare=False, repr=False)
    previous_response_id: str | None = None


@dataclass(frozen=True)
class EndpointCapabilities:
    """What an endpoint can do beyond plain chat."""

    has_token_evidence: bool = False
    """Answers can carry `prompt_token_ids`, `token_ids` and logprobs, as vLLM returns them."""


class Endpoint(Protocol):
    """Where completions come from: scripted, a remote URL, later the policy being trained.

    `complete` returns the answer as a plain Chat Completions JSON object with at least one choice.
    It may be called from several event loops (the harness's own and the one that serves
    synchronous plugins). It raises

    * `EndpointUnreachableError` when there is no connection or no answer in time,
    * `EndpointResponseError` when the answer is an error, also one hidden in a 200 answer
      (``error`` in the body, ``choices`` null or empty), with `is_transient` set for 408, 409,
      429, 5xx and for errors inside a 200 answer,
    * `ConfigurationError` when a sampling parameter cannot be expressed on this endpoint,
    * `TranslationError` when the endpoint speaks the Responses API, which cannot hold the request.

    It never retries: retries belong to the session.
    """

    name: str
    model: str | None
    """None: each call's own ``model`` counts (ROLL-38)."""
    capabilities: EndpointCapabilities

    async def complete(self, request: ModelRequest) -> dict[str, Any]:
        """Answer one request."""
        ...

    async def check_reachable(self) -> None:
        """Raise `EndpointUnreachableError` within seconds when nothing listens there.

        It sends no request: a key or a model that is refused shows with the first answer.
        """
        ...

    async def close(self) -> None:
        """Release connections. Idempotent."""
        ...
