"""Content of messages: a text or a list of parts, under the names of either API.

``{"type": "input_image", "image_url": URL, "detail": D}`` in Responses is
``{"type": "image_url", "image_url": {"url": URL, "detail": D}}`` in Chat; Ark's videos alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arkdev.errors import TranslationError

_TEXTS = ("input_text", "output_text")
_CHAT_MEDIA = {"input_image": "image_url", "input_video": "video_url"}
_RESPONSES_MEDIA = {chat: responses for responses, chat in _CHAT_MEDIA.items()}
_CHAT_NAMES = {"text": "input_text", **_RESPONSES_MEDIA}


def chat_content(content: Any, *, where: str, role: str) -> Any:
    """Return the content of a Responses item as a Chat message has it.

    One text part becomes a text, as text-only models want it (SURFACE ROLL-37); the texts of an
    assistant are joined. Raises `TranslationError` for a part that Chat Completions lacks.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise TranslationError(
            f"{where} is neither a text nor a list of parts",
            param=where,
            hint="JSON results go in as text: json.dumps(result)",
        )
    parts = [_chat_part(part, where=f"{where}[{index}]") for index, part in enumerate(content)]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    if role == "assistant" and len(texts) < len(parts):
        raise TranslationError(f"{where} of an assistant has more than text", param=where)
    is_text = role == "assistant" or len(parts) <= 1
    return "".join(texts) if is_text and len(texts) == len(parts) else parts


def _chat_part(part: Any, *, where: str) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXTS and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind in _CHAT_MEDIA:
        name = _CHAT_MEDIA[kind]
        fields = {k: v for k, v in part.items() if k not in ("type", name) and v is not None}
        if isinstance(part.get(name), str) and "file_id" not in fields:
            return {"type": name, name: {"url": part[name], **fields}}
        raise TranslationError(
            f"{where} needs a {name} that is a text; uploaded files cannot be translated",
            param=where,
        )
    hint = f"in the Responses API this is {_CHAT_NAMES[kind]!r}" if kind in _CHAT_NAMES else ""
    raise TranslationError(
        f"{where} is a part of type {kind!r}, which cannot be translated to Chat Completions",
        param=where,
        hint=hint,
    )


def responses_content(content: Any, *, where: str) -> Any:
    """Return the content of a Chat message as a Responses item has it."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise TranslationError(f"{where} is neither a text nor a list of parts", param=where)
    return [_responses_part(part, where=f"{where}[{index}]") for index, part in enumerate(content)]


def _responses_part(part: Any, *, where: str) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        return {"type": "input_text", "text": part["text"]}
    if kind in _RESPONSES_MEDIA and isinstance(part.get(kind), dict):
        fields = {key: value for key, value in part[kind].items() if key != "url"}
        if kind == "image_url":
            fields.setdefault("detail", "auto")  # the Responses API requires it
        return {"type": _RESPONSES_MEDIA[kind], kind: part[kind].get("url"), **fields}
    raise TranslationError(
        f"{where} is a part of type {kind!r}, which cannot be translated to the Responses API",
        param=where,
    )


def text_of(content: Any) -> str:
    """Return the text of a Chat message's content, which may be null or a list of parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return content or ""


def reasoning_text(item: Mapping[str, Any]) -> str:
    """Return the text of a reasoning item: its content, where there is none its summary."""
    parts = item.get("content") or item.get("summary") or []
    return "\n".join(part.get("text") or "" for part in parts if isinstance(part, dict))


def add_reasoning(message: dict[str, Any], text: str) -> None:
    """Append `text` to the ``reasoning_content`` of a Chat message."""
    before = message.get("reasoning_content")
    if text:
        message["reasoning_content"] = f"{before}\n{text}" if before else text
