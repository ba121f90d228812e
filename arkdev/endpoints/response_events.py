"""The Responses API as ``text/event-stream``: a Response taken apart, and put together.

::

    response.created  response.in_progress
      response.output_item.added
        response.content_part.added  response.output_text.delta …  response.output_text.done
        response.content_part.done
      response.output_item.done                      …for each item of the output
    response.completed (or response.incomplete)      with the whole Response

Every event has a ``sequence_number``, counted from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from arkdev.endpoints.event_stream import EventStreamError, decode_event, events_in, pieces

_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")
_NOT_AT_THE_START = ("prompt_token_ids", "prompt_logprobs", "token_ids", "logprobs")
_EMPTY: dict[object, dict[str, Any]] = {
    "message": {"content": []},
    "reasoning": {"summary": []},
    "function_call": {"arguments": ""},
}
_PARTS = {"output_text": ("text", "output_text"), "refusal": ("refusal", "refusal")}


def response_events(response: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a complete Response as the events of a stream."""
    for number, event in enumerate(_events(response)):
        yield numbered(event, number)


def numbered(event: Event, number: int) -> dict[str, Any]:
    """Return an event as it is sent."""
    name, fields = event
    return {"type": f"response.{name}", **fields, "sequence_number": number}


def assemble_response(text: str) -> dict[str, Any]:
    """Return the Response that the events in `text` end with.

    An ``error`` event is returned as an error body, for `answers.check_response` to refuse. Raises
    `EventStreamError` for events that are not JSON objects and for a stream without an end.
    """
    for data in events_in(text):
        if data == "[DONE]":
            break
        event = decode_event(data)
        if event.get("type") in _LAST_EVENTS and isinstance(event.get("response"), dict):
            return dict(event["response"])
        if event.get("error"):
            return event
        if event.get("type") == "error":
            return {"error": {key: event.get(key) for key in ("code", "message", "param")}}
    raise EventStreamError("the event stream ended before the response was complete")


Event: TypeAlias = tuple[str, dict[str, Any]]
"""Its name, without ``response.``, and its fields."""


def first_events(response: Mapping[str, Any]) -> Iterator[Event]:
    """Yield what comes before the output of `response`, whose output may not be known yet."""
    begun = {key: value for key, value in response.items() if key not in _NOT_AT_THE_START}
    begun |= {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield "created", {"response": begun}
    yield "in_progress", {"response": begun}


def last_event(response: Mapping[str, Any]) -> Event:
    """Return the event that ends the stream, with the whole Response."""
    status = response.get("status")
    return status if status in ("incomplete", "failed") else "completed", {"response": response}


def begin_item(item: Mapping[str, Any], index: int) -> Event:
    """Return the event of an item of which nothing is known but its id, kind and name."""
    begun = {**item, **_EMPTY.get(item.get("type"), {}), "status": "in_progress"}
    return "output_item.added", {"item": begun, "output_index": index}


def end_item(item: Mapping[str, Any], index: int) -> Event:
    """Return the event of an item that is complete."""
    return "output_item.done", {"item": item, "output_index": index}


def begin_part(part: Mapping[str, Any], place: Mapping[str, Any]) -> Event:
    """Return the event of a part of a message (or a reasoning summary) that begins."""
    if part["type"] == "summary_text":
        return "reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
    key, _ = _PARTS[part["type"]]
    empty = {**part, key: "", **({"logprobs": []} if key == "text" else {})}
    return "content_part.added", {**place, "part": empty}


def more_of_part(kind: str, piece: str, place: Mapping[str, Any]) -> Event:
    """Return the event of a piece of a part of the type `kind`."""
    if kind == "summary_text":
        return "reasoning_summary_text.delta", {**place, "delta": piece}
    key, name = _PARTS[kind]
    logprobs: dict[str, Any] = {"logprobs": []} if key == "text" else {}
    return f"{name}.delta", {**place, "delta": piece, **logprobs}


def end_part(part: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[Event]:
    """Yield the events of a part that is complete."""
    if part["type"] == "summary_text":
        yield "reasoning_summary_text.done", {**place, "text": part["text"]}
        yield "reasoning_summary_part.done", {**place, "part": part}
        return
    key, name = _PARTS[part["type"]]
    logprobs = {"logprobs": part.get("logprobs") or []} if key == "text" else {}
    yield f"{name}.done", {**place, key: part[key], **logprobs}
    yield "content_part.done", {**place, "part": part}


def call_arguments(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[Event]:
    """Yield the events of a function call's arguments."""
    for piece in pieces(item["arguments"]):
        yield "function_call_arguments.delta", {**place, "delta": piece}
    done = {"name": item["name"], "arguments": item["arguments"]}
    yield "function_call_arguments.done", {**place, **done}


def parts_of(item: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    """Yield the parts of a message or a reasoning item, each with its place within the item."""
    if item.get("type") == "message":
        for number, part in enumerate(item["content"]):
            yield part, {"content_index": number}
    elif item.get("type") == "reasoning":
        for number, part in enumerate(item["summary"]):
            yield part, {"summary_index": number}


def _events(response: Mapping[str, Any]) -> Iterator[Event]:
    yield from first_events(response)
    for index, item in enumerate(response["output"]):
        yield from item_events(item, index)
    yield last_event(response)


def item_events(item: Mapping[str, Any], index: int) -> Iterator[Event]:
    """Yield the events of an item that is there as a whole."""
    place = {"item_id": item.get("id"), "output_index": index}
    yield begin_item(item, index)
    for part, part_place in parts_of(item):
        at = {**place, **part_place}
        yield begin_part(part, at)
        for piece in pieces(_text_of(part)):
            yield more_of_part(part["type"], piece, at)
        yield from end_part(part, at)
    if item.get("type") == "function_call":
        yield from call_arguments(item, place)
    yield end_item(item, index)


def _text_of(part: Mapping[str, Any]) -> str:
    text: str = part["text" if part["type"] == "summary_text" else _PARTS[part["type"]][0]]
    return text
