"""Model calls on a tape, at the endpoint of one session: each sending of a request by itself.

The session sends again what failed, so a recorded run's retries happen again on replay.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from arkdev import errors
from arkdev.endpoints.endpoint import Endpoint, EndpointCapabilities, ModelRequest
from arkdev.errors import ArkdevError, EndpointResponseError, EndpointUnreachableError
from arkdev.tape.format import CANCELLED, MODEL, Line, StreamKey
from arkdev.tape.recording import Recording
from arkdev.tape.redaction import Redaction
from arkdev.tape.replay import Replay


class RecordedEndpoint:
    """Passes the calls of one attempt on, and records them."""

    def __init__(self, endpoint: Endpoint, recording: Recording, stream: StreamKey) -> None:
        self.name = endpoint.name
        self.model = endpoint.model
        self.capabilities = endpoint.capabilities
        self._endpoint = endpoint
        self._recording = recording
        self._stream = stream

    async def complete(self, request: ModelRequest) -> dict[str, Any]:
        """Answer one request; raises what the endpoint raises."""
        asked = request_document(request)
        number = self._recording.number(MODEL, self._stream)
        try:
            answer = await self._endpoint.complete(request)
        except ArkdevError as error:
            document = _error_document(error)
            self._keep(number, asked, lambda redaction: {"error": redaction.named(document)})
            raise
        except asyncio.CancelledError:
            self._keep(number, asked, lambda _: {"outcome": CANCELLED})
            raise
        text = json.dumps(answer)  # as it is now: the session and the plugin may change it
        self._keep(
            number, asked, lambda redaction: {"answer": redaction.literals(json.loads(text))}
        )
        return answer

    def _keep(self, number: int, asked: Line, outcome: Callable[[Redaction], Line]) -> None:
        self._recording.exchange(
            MODEL,
            self._stream,
            number=number,
            exchange=lambda redaction: {"request": redaction.named(asked), **outcome(redaction)},
        )

    async def check_reachable(self) -> None:
        """See `Endpoint`."""
        await self._endpoint.check_reachable()

    async def close(self) -> None:
        """The endpoint is the run's."""


class ReplayedEndpoint:
    """Answers the calls of one attempt from a tape."""

    def __init__(self, replay: Replay, stream: StreamKey, *, name: str, model: str | None) -> None:
        self.name = name
        self.model = model
        self.capabilities = EndpointCapabilities()
        self._replay = replay
        self._stream = stream

    async def complete(self, request: ModelRequest) -> dict[str, Any]:
        """Answer one request; raises what was recorded, or `TapeMismatchError`."""
        asked = self._replay.redaction.named(request_document(request))
        line = self._replay.answer(MODEL, self._stream, asked)
        if line.get("outcome") == CANCELLED:
            await asyncio.Event().wait()  # until it is given up again
        if "error" in line:
            raise _error(line["error"])
        answer: dict[str, Any] = line["answer"]
        return answer

    async def check_reachable(self) -> None:
        """A tape is always there."""

    async def close(self) -> None:
        """Nothing to release."""


def request_document(request: ModelRequest) -> Line:
    """Return a request as JSON. Its seed follows from the run's and is left out."""
    document: Line = json.loads(
        json.dumps({"body": request.body, "sampling": request.sampling}, default=repr)
    )
    return document


_FIELDS: dict[type[ArkdevError], tuple[str, ...]] = {
    EndpointUnreachableError: ("hint", "is_timeout"),
    EndpointResponseError: ("hint", "status", "body", "headers", "is_transient"),
    errors.TranslationError: ("hint", "param"),
}


def _error_document(error: ArkdevError) -> Line:
    names = _FIELDS.get(type(error), ("hint",))
    return {
        "type": type(error).__name__,
        "message": error.message,
        **json.loads(json.dumps({name: getattr(error, name) for name in names}, default=repr)),
    }


def _error(document: Line) -> ArkdevError:
    cls = getattr(errors, document["type"], errors.EndpointError)
    fields = {name: document[name] for name in _FIELDS.get(cls, ("hint",)) if name in document}
    error: ArkdevError = cls(document["message"], **fields)
    return error
