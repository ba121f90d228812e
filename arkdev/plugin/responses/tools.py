"""Tools, the choice among them and the answer's format, under the names of either API.

A function tool of the Responses API has no nested ``function`` (SURFACE GROUP-16)::

    {"type": "function", "name": "f", "parameters": {…}}                  Responses
    {"type": "function", "function": {"name": "f", "parameters": {…}}}    Chat
"""

from __future__ import annotations

from typing import Any

from arkdev.errors import TranslationError

_FUNCTION_FIELDS = ("name", "description", "parameters", "strict")
_FLAT = '{"type": "function", "name": ..., "description": ..., "parameters": ...}'


def chat_tools(tools: list[Any]) -> list[dict[str, Any]]:
    """Return Responses function tools as Chat tools.

    Raises `TranslationError` for the Chat form, which the Responses API refuses too, and for tools
    that are built into a server, by their type.
    """
    if not isinstance(tools, list):
        raise TranslationError("tools is not a list", param="tools")
    return [_chat_tool(tool, where=f"tools[{index}]") for index, tool in enumerate(tools)]


def _chat_tool(tool: Any, *, where: str) -> dict[str, Any]:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind != "function":
        raise TranslationError(
            f"{where} is a tool of type {kind!r}; only function tools can be translated",
            param=where,
            hint=f"write the tool as a function of yours: {_FLAT}",
        )
    if "function" in tool and "name" not in tool:
        raise TranslationError(
            f"{where} has the form of Chat Completions, with a nested `function`",
            param=where,
            hint=f"in the Responses API write {_FLAT}",
        )
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise TranslationError(f"{where} has no name", param=f"{where}.name")
    fields = {key: tool[key] for key in _FUNCTION_FIELDS if tool.get(key) is not None}
    return {"type": "function", "function": fields}


def responses_tools(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return Chat tools as Responses tools."""
    return [
        {"type": "function", **tool["function"]} if isinstance(tool.get("function"), dict) else tool
        for tool in tools
    ]


def chat_tool_choice(choice: Any) -> Any:
    """Return a Responses ``tool_choice`` as Chat writes it."""
    if isinstance(choice, str):
        return choice
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "function" and isinstance(choice.get("name"), str):
        return {"type": "function", "function": {"name": choice["name"]}}
    hint = 'name the function: {"type": "function", "name": ...}'
    raise TranslationError(
        f"tool_choice {choice!r} cannot be translated", param="tool_choice", hint=hint
    )


def responses_tool_choice(choice: Any) -> Any:
    """Return a Chat ``tool_choice`` as the Responses API writes it."""
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        return {"type": "function", "name": choice["function"].get("name")}
    return choice


def response_format_of_text(text_format: Any) -> dict[str, Any]:
    """Return ``text.format`` as Chat's ``response_format``."""
    kind = text_format.get("type") if isinstance(text_format, dict) else None
    if kind in ("text", "json_object"):
        return {"type": kind}
    if kind == "json_schema":
        return {"type": kind, kind: _without(text_format, "type")}
    raise TranslationError(
        f"text.format has the type {kind!r}, not one of text, json_object, json_schema",
        param="text.format",
    )


def text_format_of_response(response_format: dict[str, Any]) -> dict[str, Any]:
    """Return Chat's ``response_format`` as ``text.format``."""
    if response_format.get("type") == "json_schema":
        return {"type": "json_schema", **(response_format.get("json_schema") or {})}
    return response_format


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in names and value is not None}
