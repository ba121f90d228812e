"""A Response as a stream while its answer comes: made of the chunks of a Chat Completions stream.

Reasoning and text go out piece by piece; function calls follow once the answer is complete.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from itertools import count
from typing import Any

from arkdev.endpoints.event_stream import assemble_chunks
from arkdev.endpoints.response_events import (
    Event,
    begin_item,
    begin_part,
    end_item,
    end_part,
    first_events,
    item_events,
    last_event,
    more_of_part,
    numbered,
    parts_of,
)
from arkdev.endpoints.serving.stored_responses import OpenedRequest

_KEYS = ("reasoning_content", "content")


async def live_response(
    chunks: AsyncGenerator[dict[str, Any]],
    opened: OpenedRequest,
    *,
    close: Callable[[dict[str, Any]], dict[str, Any]],
) -> AsyncGenerator[dict[str, Any]]:
    """Yield the events of the Response that `chunks` make.

    `close` makes the Response of the complete Chat Completions answer, whose usage is to be among
    the chunks.
    """
    seen: list[dict[str, Any]] = []
    numbers = count()
    output = _Output(opened)
    async with aclosing(chunks):
        async for chunk in chunks:
            seen.append(chunk)
            events = output.begin(chunk) if len(seen) == 1 else output.push(chunk)
            for event in events:
                yield numbered(event, next(numbers))
    for event in output.finish(close(assemble_chunks(seen))):
        yield numbered(event, next(numbers))


class _Output:
    """The items of the output: which one is open, and what it says so far."""

    def __init__(self, opened: OpenedRequest) -> None:
        self._opened = opened
        self._head: dict[str, Any] = {}
        self._message: dict[str, Any] = {"content": None}
        self._open: str | None = None
        """The key of the text that is being written."""
        self._num_ended = 0

    def begin(self, chunk: dict[str, Any]) -> Iterator[Event]:
        """Yield what comes first."""
        self._head = {key: value for key, value in chunk.items() if key != "choices"}
        yield from first_events(self._response())

    def push(self, chunk: dict[str, Any]) -> Iterator[Event]:
        """Yield what a chunk adds."""
        for choice in chunk["choices"]:
            for key in _KEYS:
                piece = choice["delta"].get(key)
                if piece:
                    yield from self._more(key, piece)

    def finish(self, response: dict[str, Any]) -> Iterator[Event]:
        """Yield the end of the open item, the items that were not begun, and the last event."""
        items = list(enumerate(response["output"]))[self._num_ended :]
        for number, (index, item) in enumerate(items):
            if number == 0 and self._open is not None:
                yield from _end(item, index)
            else:
                yield from item_events(item, index)
        yield last_event(response)

    def _more(self, key: str, piece: str) -> Iterator[Event]:
        if self._open not in (None, key):
            yield from _end(self._item(), self._num_ended)
            self._num_ended += 1
        begins = self._open != key
        self._open = key
        self._message[key] = (self._message.get(key) or "") + piece
        item, index = self._item(), self._num_ended
        part, place = next(parts_of(item))
        at = {"item_id": item["id"], "output_index": index, **place}
        if begins:
            yield begin_item(item, index)
            yield begin_part(part, at)
        yield more_of_part(part["type"], piece, at)

    def _item(self) -> dict[str, Any]:
        item: dict[str, Any] = self._response()["output"][self._num_ended]
        return item

    def _response(self) -> dict[str, Any]:
        choice = {"message": self._message, "finish_reason": None}
        return self._opened.response_of({**self._head, "choices": [choice]})


def _end(item: dict[str, Any], index: int) -> Iterator[Event]:
    for part, place in parts_of(item):
        yield from end_part(part, {"item_id": item["id"], "output_index": index, **place})
    yield end_item(item, index)
