"""How a proxy reaches the attempt that it belongs to. The session implements it."""

from __future__ import annotations

from typing import Any, Protocol

from arkdev.plugin.conversation import Conversation
from arkdev.plugin.response_tree import ResponseTree


class ModelAccess(Protocol):
    """One attempt, as its proxy and its wrapped clients see it.

    `complete` and `complete_blocking` take a Chat Completions body without sampling parameters
    and return the answer as JSON. They raise `LateCallError` once the attempt has ended and
    `EndpointError` when the model call failed for good.
    """

    url: str
    """Base URL of the loopback gateway, for raw clients."""
    jwt_token: str
    responses: ResponseTree
    is_in_a_run: bool
    """True when the harness runs the attempt, so that its own tasks and threads know of it."""

    @property
    def conversation(self) -> Conversation:
        """The context of the last call."""
        ...

    async def complete(self, body: dict[str, Any], *, timeout_s: float | None) -> dict[str, Any]:
        """Answer a call made on an event loop."""
        ...

    def complete_blocking(self, body: dict[str, Any], *, timeout_s: float | None) -> dict[str, Any]:
        """Answer a call made by synchronous code."""
        ...

    async def respond(self, request: dict[str, Any], *, timeout_s: float | None) -> dict[str, Any]:
        """Answer a Responses call made on an event loop; `request` is its JSON body."""
        ...

    def respond_blocking(
        self, request: dict[str, Any], *, timeout_s: float | None
    ) -> dict[str, Any]:
        """Answer a Responses call made by synchronous code."""
        ...

    def insert(self, messages: list[dict[str, Any]], *, previous_response_id: str | None) -> str:
        """Put messages made outside under a response; return the id to branch from."""
        ...

    def set_history(self, messages: list[dict[str, Any]]) -> None:
        """Take the whole history that a raw rollout is about to send."""
        ...

    def acknowledge(self, answer: dict[str, Any]) -> None:
        """Take the answer that a raw rollout hands back (`process_completion`)."""
        ...

    def refused(self, text: str) -> None:
        """Remember a call that was refused before it was sent, in case the plugin hides it."""
        ...

    def note(self, code: str, detail: str = "") -> None:
        """Count a warning for the report."""
        ...
