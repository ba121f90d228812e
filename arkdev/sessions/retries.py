"""When a failed model call goes out again, and after which wait.

The back-off is the one that the platform's documentation advises: 1 to 2 s, doubled each time, at
most 30 s. An endpoint that says how long to wait (``retry-after-ms``, or ``Retry-After`` as seconds
or as a date, RFC 9110 section 10.2.3) is believed, up to `RetryPolicy.longest_retry_after_s`. Of a
wait nothing is held: neither a slot of the endpoint nor one of another sample.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TypeVar

from arkdev.errors import EndpointError, EndpointResponseError, LongWaitError

MAX_RETRIES = 2
"""A model call goes out three times in all, as the documented clients send it."""

_DATE_RESOLUTION_S = 1.0
"""A date has no fractions: the moment that it means is up to a second later."""
_SPREAD = 0.25
_DIGITS = re.compile(r"[0-9]{1,300}(\.[0-9]+)?")
"""`float` alone would take ``1_0`` for 10, and ``inf``."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class RetryPolicy:
    """How often a failed model call goes out again, and the wait before it.

    `draw` gives numbers in [0, 1), `now` the seconds since 1970 that dates are compared with.
    """

    max_retries: int = MAX_RETRIES
    first_wait_s: float = 1.0
    """The first back-off is drawn from [first_wait_s, 2·first_wait_s)."""
    longest_wait_s: float = 30.0
    """Of a back-off."""
    longest_retry_after_s: float = 60.0
    """An endpoint that asks for more gets no further try, also not from another attempt."""
    draw: Callable[[], float] = random.random
    now: Callable[[], float] = time.time

    def wait_s(self, retry: int) -> float:
        """Seconds of back-off before retry number `retry` (0 is the first)."""
        return min(self.longest_wait_s, self.first_wait_s * (1 + self.draw()) * float(2**retry))

    def wait_after(self, error: EndpointError, *, retry: int) -> float:
        """Seconds to wait after `error`, before retry number `retry`.

        What the endpoint asks for is a minimum: up to a quarter of it, at least up to
        `first_wait_s`, is added, so that calls which were told the same time spread out. Raises
        `LongWaitError` when the endpoint asks for more than `longest_retry_after_s`.
        """
        if not isinstance(error, EndpointResponseError):
            return self.wait_s(retry)
        asked_s = asked_wait_s(error.headers, now=self.now())
        if asked_s is None or asked_s <= 0:  # at once would be the same for all who were told so
            return self.wait_s(retry)
        if asked_s > self.longest_retry_after_s:
            raise self._asks_too_much(error, asked_s) from error
        return asked_s + self.draw() * max(self.first_wait_s, _SPREAD * asked_s)

    def _asks_too_much(self, error: EndpointResponseError, asked_s: float) -> LongWaitError:
        return LongWaitError(
            f"{error.message} (it asks to wait {asked_s:,.0f} s before the next try; "
            f"arkdev waits at most {self.longest_retry_after_s:g} s)",
            status=error.status,
            body=error.body,
            headers=error.headers,
            hint="wait that long and go on with --resume, or ask the endpoint's provider for more",
        )


async def send_with_retries(
    send: Callable[[], Awaitable[_T]], *, policy: RetryPolicy, before_retry: Callable[[], None]
) -> tuple[_T, int]:
    """Call `send` until it answers or `policy` gives up; return the answer and the retries.

    Raises the last error of `send`, and whatever `before_retry` raises to end it after a wait.
    """
    retry = 0
    while True:
        try:
            return await send(), retry
        except EndpointError as error:
            if not error.is_transient or retry >= policy.max_retries:
                raise
            wait_s = policy.wait_after(error, retry=retry)
        await asyncio.sleep(wait_s)
        before_retry()
        retry += 1


def asked_wait_s(headers: Mapping[str, str], *, now: float) -> float | None:
    """Return the seconds that an answer's headers (lower-case names) ask to wait, from `now` on.

    A date that is past gives a negative number. None: nothing is asked, or nothing that can be
    read.

    >>> [asked_wait_s({name: "250"}, now=0.0) for name in ("retry-after-ms", "retry-after")]
    [0.25, 250.0]
    >>> asked_wait_s({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, now=30.5)
    30.5
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after", "")
    seconds = _number(text)
    return seconds if seconds is not None else _until(text, now=now)


def _number(text: str) -> float | None:
    return float(text) if _DIGITS.fullmatch(text.strip()) else None


def _until(text: str, *, now: float) -> float | None:
    """Return the seconds until an HTTP date, in any of the three forms of RFC 9110."""
    try:
        date = parsedate_to_datetime(text)
        if date.tzinfo is None:  # the form of asctime(), which is in GMT as well
            date = date.replace(tzinfo=UTC)
        return date.timestamp() + _DATE_RESOLUTION_S - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
