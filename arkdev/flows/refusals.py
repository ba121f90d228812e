"""An endpoint that refuses the key or the model, or that has gone away: the run ends early.

A wrong key fails every call the same way. Trying every rollout four times would tell nothing more,
so the run stops when the first `NUM_REFUSALS` answers are all such refusals. A server that died
answers nothing any more: the run stops when `NUM_UNANSWERED` calls in a row, each sent as often as
the sessions send it, came to nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from arkdev.endpoints.endpoint import Endpoint, ModelRequest
from arkdev.errors import EndpointError, EndpointResponseError, EndpointUnreachableError

NUM_REFUSALS = 4
"""As many as one rollout's attempts make, at the least."""

NUM_UNANSWERED = 16

_REFUSED = (401, 403, 404)
"""The key, what it may use, the model or the URL: the same for every call of a run."""


class RefusalWatch:
    """An `Endpoint` that passes calls on to another one and watches what becomes of them.

    `sends_per_call` is how often a session sends a call before it gives up.
    """

    def __init__(self, endpoint: Endpoint, *, sends_per_call: int = 1) -> None:
        self.name = endpoint.name
        self.model = endpoint.model
        self.capabilities = endpoint.capabilities
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._has_answered = False
        self._refusals: list[EndpointResponseError] = []
        self._sends_per_call = sends_per_call
        self._num_sent: dict[int, int] = {}
        """How often each call that got no answer yet was sent, by the id of its request."""
        self._num_unanswered = 0
        """Calls in a row that were given up."""
        self._last_unanswered: EndpointUnreachableError | None = None
        self._stops: set[Callable[[], object]] = set()
        """Of each piece of work that is under way."""

    async def complete(self, request: ModelRequest) -> dict[str, Any]:
        """Answer one request; raises as the watched endpoint does."""
        try:
            answer = await self._endpoint.complete(request)
        except EndpointResponseError as error:
            self._note_answer(request)
            self._count(error)
            raise
        except EndpointUnreachableError as error:
            self._count_unanswered(request, error)
            raise
        self._note_answer(request)
        self._has_answered = True
        return answer

    async def check_reachable(self) -> None:
        """See `Endpoint`."""
        await self._endpoint.check_reachable()

    async def close(self) -> None:
        """See `Endpoint`."""
        await self._endpoint.close()

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Await `work`, which makes the calls; cancel it once nothing can come of it any more.

        Raises `EndpointError` then, with the endpoint's own sentence.
        """
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)

        def stop() -> None:
            loop.call_soon_threadsafe(task.cancel)

        self._stops.add(stop)
        try:
            await task
        except asyncio.CancelledError:
            refusal = self._refusal() or self._silence()
            if refusal is not None and task.cancelled() and not _is_cancelled_from_outside():
                raise refusal from None
            raise
        finally:
            self._stops.discard(stop)

    def _end_all(self) -> None:
        for stop in list(self._stops):
            stop()

    def _count(self, error: EndpointResponseError) -> None:
        with self._lock:
            if self._has_answered or len(self._refusals) == NUM_REFUSALS:
                return
            if error.status not in _REFUSED:
                self._has_answered = True  # whatever it is, it is not the key or the model
                return
            self._refusals.append(error)
            is_enough = self._refusal() is not None
        if is_enough:
            self._end_all()

    def _note_answer(self, request: ModelRequest) -> None:
        with self._lock:
            self._num_sent.pop(id(request), None)
            self._num_unanswered = 0

    def _count_unanswered(self, request: ModelRequest, error: EndpointUnreachableError) -> None:
        with self._lock:
            num_sent = self._num_sent.pop(id(request), 0) + 1
            if num_sent < self._sends_per_call:
                self._num_sent[id(request)] = num_sent
                return
            self._num_unanswered += 1
            self._last_unanswered = error
            is_enough = self._silence() is not None
        if is_enough:
            self._end_all()

    def _silence(self) -> EndpointError | None:
        """What to raise when enough calls in a row got no answer."""
        last = self._last_unanswered
        if last is None or self._num_unanswered < NUM_UNANSWERED:
            return None
        return EndpointUnreachableError(
            f"{self._num_unanswered} model calls in a row got no answer, so the run was stopped: "
            f"{last.message}",
            hint=last.hint,
            is_timeout=last.is_timeout,
        )

    def _refusal(self) -> EndpointResponseError | None:
        """What to raise when there were enough refusals, all with one status."""
        if len(self._refusals) < NUM_REFUSALS or len({e.status for e in self._refusals}) > 1:
            return None
        first = self._refusals[0]
        return EndpointResponseError(
            f"the first {NUM_REFUSALS} model calls were all refused, so the run was stopped: "
            f"{first.message}",
            status=first.status,
            body=first.body,
            headers=first.headers,
            hint=first.hint,
        )


def _is_cancelled_from_outside() -> bool:
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0
