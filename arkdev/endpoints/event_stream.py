"""Chat Completions as ``text/event-stream``: put together, and taken apart (field case 2.6).

Some servers stream whatever was asked. `assemble` reads the whole stream and returns what the same
server would have answered without streaming::

    data: {"choices": [{"delta": {"tool_calls": [{"id": "c1", "function": {"name": "f"}}]}}]}
    data: {"choices": [{"delta": {"tool_calls": [{"id": "", "function": {"arguments": "{"}}]}}]}
    data: {"choices": [{"delta": {"tool_calls": [{"id": "", "function": {"arguments": "}"}}]}}]}
    data: [DONE]

is one message with one call of ``f`` whose arguments are ``{}``. `chat_chunks` is the reverse, for
clients that want a stream of a complete answer; `assemble` makes the same answer of it, but for
nulls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

DONE = "data: [DONE]\n\n"
"""The last event of a Chat Completions stream."""

MAX_PIECES = 4
"""Into how many deltas a text is cut."""

_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")
_LIST_FIELDS = ("token_ids",)
_CHUNK_FIELDS = ("id", "created", "model")


class EventStreamError(ValueError):
    """The stream cannot be put together; the message says why."""


def assemble(text: str) -> dict[str, Any]:
    """Return the completion that the events in `text` describe.

    A chunk with an ``error`` is returned as it is, for `answers.check_answer` to refuse. Raises
    `EventStreamError` for events that are not JSON objects or no chunks, for a stream without
    choices, and for one that ends before a ``finish_reason`` and before ``[DONE]``.
    """
    try:
        return _assembled(text)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise EventStreamError(f"an event is no chunk of an answer ({error})") from error


def _assembled(text: str) -> dict[str, Any]:
    chunks: list[dict[str, Any]] = []
    is_done = False
    for data in events_in(text):
        if data == "[DONE]":
            is_done = True
            break
        chunk = decode_event(data)
        if chunk.get("error"):
            return chunk
        chunks.append(chunk)
    completion = assemble_chunks(chunks)
    choices = completion["choices"]
    if not is_done and any(not choice.get("finish_reason") for choice in choices):
        raise EventStreamError("the event stream ended before the answer was complete")
    return completion


def assemble_chunks(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the completion that `chunks` make. Raises `EventStreamError` without a choice."""
    completion: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        _merge_top_level(completion, chunk)
        for part in chunk.get("choices") or ():
            if not isinstance(part, dict):
                raise EventStreamError("a choice of an event is not a JSON object")
            index = part.get("index") or 0
            choice = choices.setdefault(index, {"index": index, "message": {"role": "assistant"}})
            _merge_choice(choice, part)
    if not choices:
        raise EventStreamError("the event stream holds no choices")
    completion["object"] = "chat.completion"
    completion["choices"] = [_finished(choices[index]) for index in sorted(choices)]
    return completion


def events_in(text: str) -> Iterator[str]:
    """Yield the data of each event: its ``data:`` lines, joined, as the standard defines them."""
    lines: list[str] = []
    for line in [*text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif not line and lines:
            yield "\n".join(lines)
            lines = []


def decode_event(data: str) -> dict[str, Any]:
    """Return an event's JSON object; raise `EventStreamError` when it is none."""
    try:
        chunk = json.loads(data)
    except (ValueError, RecursionError):
        chunk = None
    if not isinstance(chunk, dict):
        raise EventStreamError("an event is not a JSON object")
    return chunk


def _merge_top_level(completion: dict[str, Any], chunk: dict[str, Any]) -> None:
    """Keep the first of each field, but the last `usage`, which counts the whole answer."""
    for key, value in chunk.items():
        if key == "choices" or value is None:
            continue
        if key == "usage":
            completion[key] = value
        else:
            completion.setdefault(key, value)


def _merge_choice(choice: dict[str, Any], part: dict[str, Any]) -> None:
    # one event with the whole answer has a message, as without streaming
    _merge_delta(choice["message"], part.get("delta") or part.get("message") or {})
    for key, value in part.items():
        if key in ("delta", "message", "index") or value is None:
            continue
        if key == "logprobs":
            _extend_logprobs(choice.setdefault("logprobs", {}), value)
        elif key in _LIST_FIELDS:
            choice.setdefault(key, []).extend(value)
        else:
            choice[key] = value


def _merge_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if value is None:
            continue
        if key == "tool_calls":
            for call_part in value:
                _merge_tool_call(message.setdefault("tool_calls", []), call_part)
        elif key in _TEXT_FIELDS:
            message[key] = _joined(message.get(key, ""), value)
        elif value != "":
            message[key] = value


def _joined(so_far: Any, value: Any) -> Any:
    """Join two texts, or two lists of parts when a server sends content as parts."""
    if isinstance(so_far, str) and isinstance(value, str):
        return so_far + value
    return [*_as_parts(so_far), *_as_parts(value)]


def _as_parts(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [{"type": "text", "text": value}] if value else []


def _extend_logprobs(logprobs: dict[str, Any], part: dict[str, Any]) -> None:
    for key, value in part.items():
        if value is not None:
            logprobs.setdefault(key, []).extend(value)


def _merge_tool_call(calls: list[dict[str, Any]], part: dict[str, Any]) -> None:
    call = _open_call(calls, part)
    function = part.get("function") or {}
    if function.get("name") and not call["function"].get("name"):
        call["function"]["name"] = function["name"]
    arguments = function.get("arguments") or ""
    if not isinstance(arguments, str):  # some servers send the object itself, in one piece
        arguments = json.dumps(arguments, ensure_ascii=False)
    call["function"]["arguments"] += arguments


def _open_call(calls: list[dict[str, Any]], part: dict[str, Any]) -> dict[str, Any]:
    """The call that `part` continues, or a new one.

    An id that was not seen before opens a call. Without one, `index` says which call it is, and
    without that it is the last one: servers leave both out after the first chunk of a call.
    """
    call_id, index = part.get("id") or "", part.get("index")
    known = [call for call in calls if call_id and call["id"] == call_id]
    if not known and not call_id:
        known = [call for call in calls if index is not None and call["index"] == index]
        if index is None:
            known = calls
    if known:
        return known[-1]
    call = {
        "id": call_id,
        "type": part.get("type") or "function",
        "index": len(calls) if index is None else index,
        "function": {"name": "", "arguments": ""},
    }
    calls.append(call)
    return call


def _finished(choice: dict[str, Any]) -> dict[str, Any]:
    """The choice as an answer shows it: content is there, also when null; calls have no index."""
    message = choice["message"]
    message.setdefault("content", None)
    for call in message.get("tool_calls", ()):
        del call["index"]
    choice.setdefault("finish_reason", None)
    return choice


def chat_chunks(
    answer: Mapping[str, Any], *, include_usage: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield a complete answer as ``chat.completion.chunk`` objects.

    The role comes first, then reasoning, text and calls in a few pieces each, then the finish
    reason with logprobs and token ids, and the usage when it is asked for and known.
    """
    chunk = {key: answer[key] for key in _CHUNK_FIELDS if key in answer}
    chunk["object"] = "chat.completion.chunk"
    # what answers have beyond the standard fields (prompt_token_ids) comes once, with the role
    extras = {k: v for k, v in answer.items() if k not in (*chunk, "choices", "usage")}
    for choice in answer["choices"]:
        index = choice.get("index") or 0
        for delta in _deltas(choice["message"]):
            part = {"index": index, "delta": delta, "finish_reason": None}
            yield {**chunk, **extras, "choices": [part]}
            extras = {}
        last = {key: value for key, value in choice.items() if key != "message"}
        yield {**chunk, "choices": [{**last, "index": index, "delta": {}}]}
    if include_usage and answer.get("usage"):
        yield {**chunk, "choices": [], "usage": answer["usage"]}


def wants_usage(body: Mapping[str, Any]) -> bool:
    """Whether the request `body` asks for the usage at the end of its stream."""
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    kept = {k: v for k, v in message.items() if k not in (*_TEXT_FIELDS, "tool_calls")}
    yield {**kept, "role": "assistant", "content": None if content is None else ""}
    for key in ("reasoning_content", "content", "refusal"):
        for piece in pieces(message.get(key) or ""):
            yield {key: piece}
    for index, call in enumerate(message.get("tool_calls") or ()):
        yield from call_deltas(call, index)


def call_deltas(call: Mapping[str, Any], index: int) -> Iterator[dict[str, Any]]:
    """Yield a complete tool call as deltas: its id and name, then its arguments in pieces."""
    function = call.get("function") or {}
    yield {"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]}
    for piece in pieces(function.get("arguments") or ""):
        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def pieces(text: str) -> Iterator[str]:
    """Yield `text` in at most `MAX_PIECES` pieces, none when it is empty."""
    size = -(-len(text) // MAX_PIECES)
    for start in range(0, len(text), size or 1):
        yield text[start : start + size]


def event_lines(events: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield each event as it is sent. Those with a ``type`` are named by it, as Responses does."""
    for event in events:
        name = f"event: {event['type']}\n" if "type" in event else ""
        yield f"{name}data: {json.dumps(event)}\n\n"
