"""Faults of HTTP calls that the plugin itself made good: it sent the same again, in the attempt."""

from __future__ import annotations

import threading
from hashlib import blake2b
from weakref import WeakKeyDictionary

from arkdev.observe.attempt import Attempt
from arkdev.plugin.traffic.exchange import HttpRequest, HttpResponse, Outcome


class LaterAnswers:
    """Tells attempts which of their faults had an answer later; safe from any thread.

    The same request is one with the same method, URL and body.
    """

    def __init__(self) -> None:
        self._faults: WeakKeyDictionary[Attempt, dict[bytes, list[object]]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def failed(self, attempt: Attempt, request: HttpRequest, fault: object) -> None:
        """Remember a fault, as `Attempt.fault` returned it."""
        if request.body is None:  # whether a stream is the same again is not known
            return
        with self._lock:
            of_attempt = self._faults.setdefault(attempt, {})
            of_attempt.setdefault(_digest(request), []).append(fault)

    def ended(self, attempt: Attempt, request: HttpRequest, outcome: Outcome) -> None:
        """Take how a call ended: a good answer makes good what the same call ran into before."""
        is_good = isinstance(outcome, HttpResponse) and outcome.status < 400
        if not is_good or outcome.is_injected or attempt not in self._faults:
            return
        with self._lock:
            faults = self._faults[attempt].pop(_digest(request), [])
        for fault in faults:
            attempt.answered_later(fault)


def _digest(request: HttpRequest) -> bytes:
    digest = blake2b(digest_size=16)
    for part in (request.method.encode(), request.url.encode("utf-8", "backslashreplace")):
        digest.update(part + b"\n")
    digest.update(request.body or b"")
    return digest.digest()
