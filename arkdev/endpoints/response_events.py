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
from typing import Any

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
    for number, (name, fields) in enumerate(_events(response)):
        yield {"type": f"response.{name}", **fields, "sequence_number": number}


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


_Event = tuple[str, dict[str, Any]]


def _events(response: Mapping[str, Any]) -> Iterator[_Event]:
    begun = {key: value for key, value in response.items() if key not in _NOT_AT_THE_START}
    begun |= {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield "created", {"response": begun}
    yield "in_progress", {"response": begun}
    for index, item in enumerate(response["output"]):
        yield from _item_events(item, index)
    status = response.get("status")
    yield status if status in ("incomplete", "failed") else "completed", {"response": response}


def _item_events(item: Mapping[str, Any], index: int) -> Iterator[_Event]:
    kind, place = item.get("type"), {"item_id": item.get("id"), "output_index": index}
    begun = {**item, **_EMPTY.get(kind, {}), "status": "in_progress"}
    yield "output_item.added", {"item": begun, "output_index": index}
    if kind == "message":
        for number, part in enumerate(item["content"]):
            yield from _part_events(part, {**place, "content_index": number})
    elif kind == "reasoning":
        for number, part in enumerate(item["summary"]):
            yield from _summary_events(part, {**place, "summary_index": number})
    elif kind == "function_call":
        for piece in pieces(item["arguments"]):
            yield "function_call_arguments.delta", {**place, "delta": piece}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield "function_call_arguments.done", {**place, **done}
    yield "output_item.done", {"item": item, "output_index": index}


def _part_events(part: Mapping[str, Any], place: dict[str, Any]) -> Iterator[_Event]:
    key, name = _PARTS[part["type"]]
    is_text = key == "text"
    empty = {**part, key: "", **({"logprobs": []} if is_text else {})}
    yield "content_part.added", {**place, "part": empty}
    for piece in pieces(part[key]):
        yield f"{name}.delta", {**place, "delta": piece, **({"logprobs": []} if is_text else {})}
    logprobs = {"logprobs": part.get("logprobs") or []} if is_text else {}
    yield f"{name}.done", {**place, key: part[key], **logprobs}
    yield "content_part.done", {**place, "part": part}


def _summary_events(part: Mapping[str, Any], place: dict[str, Any]) -> Iterator[_Event]:
    yield "reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
    for piece in pieces(part["text"]):
        yield "reasoning_summary_text.delta", {**place, "delta": piece}
    yield "reasoning_summary_text.done", {**place, "text": part["text"]}
    yield "reasoning_summary_part.done", {**place, "part": part}
