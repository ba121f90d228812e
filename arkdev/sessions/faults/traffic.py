"""Injected faults of the HTTP calls that plugins make for themselves: the side ``tool``."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, ref

from arkdev.observe.attempt import Attempt, attempt_here
from arkdev.plugin.traffic.exchange import HttpFailure, HttpRequest, HttpResponse, Outcome
from arkdev.runs.records import FaultSide
from arkdev.sessions.faults.answers import (
    CHANGES_ANSWERS,
    cut_json,
    detail_of,
    error_body,
    error_headers,
    nonsense,
)
from arkdev.sessions.faults.later_answers import LaterAnswers
from arkdev.sessions.faults.plan import FaultPlace, FaultPlan, Strike


class FaultyTraffic:
    """A `TrafficRule` that makes HTTP calls of rollouts and graders fail.

    `call_later` is called with seconds and a function, and calls it then, from whatever thread.
    Calls that belong to no attempt are left alone.
    """

    def __init__(
        self, plan: FaultPlan, *, call_later: Callable[[float, Callable[[], None]], None]
    ) -> None:
        self._plan = plan
        self._call_later = call_later
        self._lock = threading.Lock()
        self._later_answers = LaterAnswers()
        self._num_seen: WeakKeyDictionary[Attempt, Counter[str]] = WeakKeyDictionary()
        self._strikes: dict[int, tuple[ref[HttpRequest], Strike, Attempt]] = {}
        """Of the calls that are under way, by the id of their request."""

    def before(self, request: HttpRequest) -> Future[None] | None:
        """Draw; hold the call back where it is to be slow, or to time out after a while."""
        attempt = attempt_here()
        if attempt is None:
            return None
        strike = self._plan.strike(self._place(request, attempt))
        if strike is None:
            return None
        self._keep(request, strike, attempt)
        fault = strike.fault
        if fault.kind in CHANGES_ANSWERS:  # recorded when there is something to change
            return None
        self._record(attempt, request, strike)
        if fault.kind not in ("slow", "timeout") or fault.duration_s is None:
            return None
        held: Future[None] = Future()
        self._call_later(fault.duration_s, lambda: _release(held))
        return held

    def answer(self, request: HttpRequest) -> Outcome | None:
        """Answer in place of the service where an error struck."""
        strike, _ = self._strike_of(request)
        if strike is None or strike.fault.kind in (*CHANGES_ANSWERS, "slow"):
            return None
        fault = strike.fault
        if fault.status is None:
            return HttpFailure(fault.kind, detail_of(fault), is_injected=True)
        body = json.dumps(error_body(fault)).encode("ascii")
        return HttpResponse(fault.status, error_headers(fault), body, is_injected=True)

    def changed(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Spoil the body, where there is one that the fault can spoil."""
        strike, attempt = self._strike_of(request)
        if strike is None or attempt is None or strike.fault.kind not in CHANGES_ANSWERS:
            return response
        body = _changed_body(response, strike)
        if body is None:
            return response
        self._record(attempt, request, strike)
        return replace(response, body=body, is_injected=True)

    def after(self, request: HttpRequest, outcome: Outcome, *, duration_s: float) -> None:
        """Forget the call; see whether it makes an earlier one good."""
        with self._lock:
            struck = self._strikes.pop(id(request), None)
        attempt = attempt_here()
        if struck is None and attempt is not None:
            self._later_answers.ended(attempt, request, outcome)

    def _record(self, attempt: Attempt, request: HttpRequest, strike: Strike) -> None:
        fault = attempt.fault(
            FaultSide.TOOL,
            strike.fault.kind,
            request.host,
            detail=detail_of(strike.fault),
            is_injected=True,
        )
        self._later_answers.failed(attempt, request, fault)

    def _place(self, request: HttpRequest, attempt: Attempt) -> FaultPlace:
        """Return the place of a call: what it asks, and how often that was asked before.

        Calls that run side by side keep their places in every run, whichever comes first. The port
        does not count: a service on this machine may have another one in each run.
        """
        url = urlsplit(request.url)
        asked = (request.method, url.hostname or "", url.path, url.query)
        digest = blake2b("\n".join(asked).encode("utf-8", "backslashreplace"), digest_size=8)
        digest.update(b"\n" + (request.body or b""))
        name = digest.hexdigest()
        with self._lock:
            seen = self._num_seen.setdefault(attempt, Counter())
            seen[name] += 1
            number = seen[name]
        return FaultPlace(FaultSide.TOOL, attempt.name, attempt.number, call=f"{name}.{number}")

    def _keep(self, request: HttpRequest, strike: Strike, attempt: Attempt) -> None:
        key = id(request)

        def forget(_: ref[HttpRequest]) -> None:  # of a call that never came to its end
            self._strikes.pop(key, None)

        with self._lock:
            self._strikes[key] = (ref(request, forget), strike, attempt)

    def _strike_of(self, request: HttpRequest) -> tuple[Strike | None, Attempt | None]:
        kept = self._strikes.get(id(request))
        return (kept[1], kept[2]) if kept else (None, None)


def _release(held: Future[None]) -> None:
    with suppress(InvalidStateError):  # its caller gave up in the meantime
        held.set_result(None)


def _changed_body(response: HttpResponse, strike: Strike) -> bytes | None:
    """Return the spoilt body; None when there is none, or nothing in it that the fault spoils."""
    if not response.body:
        return None
    if strike.fault.kind == "empty":
        return b""
    if strike.fault.kind == "garbage":
        return nonsense(strike.seed).encode("utf-8")
    cut = cut_json(response.body.decode("utf-8", "surrogateescape"))
    return None if cut is None else cut.encode("utf-8", "surrogateescape")
