"""The attempt of a proxy inside an instance: `ModelAccess` by calls to its session (decision 6).

The session stays where the run is. What a plugin asks of its proxy goes there over HTTP, through
the gateway (`arkdev.sessions.remote_sessions`), and what the session raises is raised here as the
same class with the same text. Raw clients talk to the gateway's own API at `url`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from arkdev.errors import EndpointUnreachableError, LateCallError, PluginError
from arkdev.observe.attempt import AttemptPlace
from arkdev.plugin.conversation import Conversation
from arkdev.plugin.error_documents import error_of
from arkdev.plugin.loopback_http import AsyncPoster, BlockingPoster, JsonAnswer
from arkdev.plugin.response_tree import ResponseNode, ResponseTree
from arkdev.plugin.responses import chat_body_of_responses
from arkdev.plugin.source import callers_place

ATTEMPT_PATH = "/arkdev/attempt"
"""Below the gateway's base URL."""

_LATE_STATUS = 401


class GatewayConnections:
    """The connections of an instance to the gateway; all of its requests share them."""

    def __init__(self) -> None:
        self._posters: dict[str, tuple[AsyncPoster, BlockingPoster]] = {}

    def to(self, url: str) -> tuple[AsyncPoster, BlockingPoster]:
        """Return what posts to the gateway at `url`."""
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        if origin not in self._posters:
            self._posters[origin] = (AsyncPoster(origin), BlockingPoster(origin))
        return self._posters[origin]

    def close(self) -> None:
        """Close those that wait for their next request; on the loop that uses them."""
        for posters in self._posters.values():
            for poster in posters:
                poster.close()


class RemoteAccess:
    """Implements `arkdev.plugin.access.ModelAccess` and `arkdev.observe.attempt.Attempt`.

    Safe to use from any thread. `attempt` is the request's ``proxy.attempt``.
    """

    is_in_a_run = True

    def __init__(
        self,
        url: str,
        *,
        jwt_token: str,
        attempt: Mapping[str, Any],
        place: AttemptPlace,
        connections: GatewayConnections,
    ) -> None:
        self.url = url
        self.jwt_token = jwt_token
        self.name = str(attempt.get("name", ""))
        self.number = int(attempt.get("number", 1))
        self.place = place
        self._path = f"{urlsplit(url).path.rstrip('/')}{ATTEMPT_PATH}"
        self._poster, self._blocking_poster = connections.to(url)
        self._numbers = itertools.count()
        self.responses: ResponseTree = _RemoteTree(self)

    @property
    def conversation(self) -> Conversation:
        """The context of the last call, as the session has it."""
        return Conversation.of_state(self.ask("conversation"))

    async def complete(self, body: dict[str, Any], *, timeout_s: float | None) -> dict[str, Any]:
        """Answer a call made on an event loop."""
        answer: dict[str, Any] = await self._model_call("complete", body, timeout_s=timeout_s)
        return answer

    def complete_blocking(self, body: dict[str, Any], *, timeout_s: float | None) -> dict[str, Any]:
        """Answer a call made by synchronous code."""
        answer: dict[str, Any] = self.ask(
            "complete", number=next(self._numbers), body=body, timeout_s=timeout_s
        )
        return answer

    async def respond(self, request: dict[str, Any], *, timeout_s: float | None) -> dict[str, Any]:
        """Answer a Responses call made on an event loop."""
        return self._took(request, await self._model_call("respond", request, timeout_s=timeout_s))

    def respond_blocking(
        self, request: dict[str, Any], *, timeout_s: float | None
    ) -> dict[str, Any]:
        """Answer a Responses call made by synchronous code."""
        made = self.ask("respond", number=next(self._numbers), body=request, timeout_s=timeout_s)
        return self._took(request, made)

    def insert(self, messages: list[dict[str, Any]], *, previous_response_id: str | None) -> str:
        """Put messages made outside under a response; return the id to branch from."""
        parent = self.responses.node(previous_response_id)
        made = self.ask("insert", messages=messages, previous_response_id=previous_response_id)
        history = [*parent.messages, *messages]
        key = tuple(made["key"])
        return self.responses.add(
            parent, key=key, history=history, answer=None, response_id=made["id"]
        ).id

    def set_history(self, messages: list[dict[str, Any]]) -> None:
        """Take the whole history that a raw rollout is about to send."""
        self.ask("set_history", messages=messages)

    def acknowledge(self, answer: dict[str, Any]) -> None:
        """Take the answer that a raw rollout hands back."""
        self.ask("acknowledge", answer=answer)

    def refused(self, text: str) -> None:
        """Remember a call that was refused before it was sent."""
        self._tell("refused", text=text)

    def note(self, code: str, detail: str = "") -> None:
        """Count a warning for the report."""
        self._tell("note", code=code, detail=detail)

    def fault(
        self, side: str, kind: str, target: str, *, detail: str = "", is_injected: bool = False
    ) -> object:
        """Record something that went wrong in the attempt."""
        arguments = {"side": side, "kind": kind, "target": target, "detail": detail}
        self._tell("fault", **arguments, is_injected=is_injected)
        return None

    def answered_later(self, fault: object) -> None:
        """Faults of an instance are not followed any further."""

    def ask(self, method: str, **arguments: Any) -> Any:
        """Call a method of the session and wait for its value; raises what it raises."""
        try:
            answer = self._blocking_poster.post(
                f"{self._path}/{method}", arguments, key=self.jwt_token
            )
        except ConnectionError as error:
            raise _gateway_gone(error) from error
        return self._value(answer)

    def _tell(self, method: str, **arguments: Any) -> None:
        """Call a method for its effect; after the end of the attempt, or the run, it has none."""
        with suppress(LateCallError, EndpointUnreachableError):
            self.ask(method, **arguments)

    async def _model_call(
        self, method: str, body: dict[str, Any], *, timeout_s: float | None
    ) -> Any:
        number = next(self._numbers)
        try:
            answer = await self._poster.post(
                f"{self._path}/{method}",
                {"number": number, "body": body, "timeout_s": timeout_s},
                key=self.jwt_token,
            )
        except asyncio.CancelledError:
            self._tell("skip", number=number)  # later calls would wait for it
            raise
        except ConnectionError as error:
            raise _gateway_gone(error) from error
        return self._value(answer)

    def _value(self, answer: JsonAnswer) -> Any:
        if answer.status == _LATE_STATUS:
            raise LateCallError(
                f"a model call of rollout {self.name} came after the end of its attempt",
                hint="the attempt returned, timed out or was cancelled; await every call in it",
            )
        if "raised" in answer.body:
            raise error_of(answer.body["raised"])
        return answer.body["value"]

    def _took(self, request: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
        """Put an answered Responses call into this side's tree."""
        response: dict[str, Any] = made["response"]
        parent = self.responses.node(request.get("previous_response_id"))
        body = chat_body_of_responses(request, history=parent.messages)
        self.responses.add(
            parent,
            key=tuple(made["key"]),
            history=body["messages"],
            answer=made["answer"],
            response_id=response["id"],
            num_instructions=1 if request.get("instructions") else 0,
        )
        return response


class _RemoteTree(ResponseTree):
    """The responses of an attempt: those made here are known, others are asked for."""

    def __init__(self, access: RemoteAccess) -> None:
        super().__init__()
        self._access = access

    def node(self, response_id: str | None) -> ResponseNode:
        """See `ResponseTree`."""
        if response_id is not None and response_id not in self._nodes:
            self._fetch(response_id)
        return super().node(response_id)

    def insert(self, messages: list[dict[str, Any]], *, previous_response_id: str | None) -> str:
        """See `ResponseTree`."""
        return self._access.insert(messages, previous_response_id=previous_response_id)

    def _fetch(self, response_id: str) -> None:
        try:
            path = self._access.ask("node", id=response_id)
        except PluginError as error:
            error.where = error.where or callers_place()
            raise
        parent = super().node(None)
        for fields in path:
            known = self._nodes.get(fields["id"])
            parent = known or self.add(
                parent,
                key=tuple(fields["key"]),
                history=fields["history"],
                answer=fields["answer"],
                response_id=fields["id"],
                num_instructions=fields["num_instructions"],
            )


def _gateway_gone(error: ConnectionError) -> EndpointUnreachableError:
    return EndpointUnreachableError(
        f"the instance cannot reach its run: {error}",
        hint="the run has ended, or the network policy of the functions forbids the way there",
    )
