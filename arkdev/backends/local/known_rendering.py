"""Rendering by the package `renderers`, for the model families that it knows."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from renderers.base import ToolCallParseStatus, create_renderer, template_field_names
from renderers.configs import config_from_name

from arkdev.backends.local.answer_text import CallText, is_name, read_call, tool_call_documents
from arkdev.backends.local.rendering import Messages, ParsedAnswer, Tools
from arkdev.backends.local.template_messages import template_messages
from arkdev.backends.local.template_rendering import TemplateRendering
from arkdev.errors import ConfigurationError

CANNOT_RENDER = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What renderers raise for tokenizers and messages that are not theirs."""
_SWITCH = "enable_thinking"


class KnownRendering:
    """Implements `arkdev.backends.local.rendering.Rendering` with one renderer of the package.

    It renders and parses. What follows an answer, and what an answer looks like, is the chat
    template's business, whose prompts are the same.
    """

    def __init__(self, family: str, tokenizer: Any, *, template: TemplateRendering) -> None:
        """Raises one of `CANNOT_RENDER` when the tokenizer is not one of that family."""
        self.name = f"renderer {family}"
        self._family = family
        self._tokenizer = tokenizer
        self._template = template
        self.has_thinking_switch = _SWITCH in template_field_names(config_from_name(family))
        self._renderer = functools.cache(self._made)
        self.stop_token_ids = template.stop_token_ids | set(
            self._renderer(None).get_stop_token_ids()
        )
        self.extend = template.extend
        self.answer_ids = template.answer_ids
        self.decode = template.decode

    def render(
        self, messages: Messages, *, tools: Tools | None = None, thinking: bool | None = None
    ) -> list[int]:
        """Return the ids of a whole prompt."""
        renderer = self._renderer(thinking)
        try:
            ids: list[int] = renderer.render_ids(
                template_messages(messages),
                tools=[dict(tool) for tool in tools] if tools else None,
                add_generation_prompt=True,
            )
        except CANNOT_RENDER as error:
            raise ConfigurationError(
                f"{self.name} cannot write these messages: {error}",
                hint="`arkdev doctor tokens --model M` shows what a model's template can write",
            ) from error
        return ids

    def parse(
        self, token_ids: Sequence[int], *, prompt_token_ids: Sequence[int] = ()
    ) -> ParsedAnswer:
        """Read an answer; as the template has it where the renderer cannot."""
        try:
            return self._parsed(list(token_ids), list(prompt_token_ids))
        except CANNOT_RENDER:
            return self._template.parse(token_ids, prompt_token_ids=prompt_token_ids)

    def _parsed(self, ids: list[int], prompt_token_ids: list[int]) -> ParsedAnswer:
        parsed = self._renderer(None).parse_response(ids, prompt_ids=prompt_token_ids)
        content = [parsed.content] if parsed.content else []
        written: list[CallText] = []
        for attempt in parsed.tool_calls:
            call = _call(attempt)
            if call is not None:
                written.append(call)
            elif attempt.token_span is not None:
                content.append(self.decode(ids[slice(*attempt.token_span)]))
            else:
                content.append(attempt.raw)
        calls = tool_call_documents(written, token_ids=ids, prompt_token_ids=prompt_token_ids)
        return ParsedAnswer("\n".join(content), parsed.reasoning_content, calls)

    def _made(self, thinking: bool | None) -> Any:
        if thinking is not None and not self.has_thinking_switch:
            raise ConfigurationError(
                f"thinking: models of the family {self._family} have no such switch",
                hint="leave `thinking` out",
            )
        switch = {} if thinking is None else {_SWITCH: thinking}
        config = config_from_name(self._family)
        return create_renderer(self._tokenizer, config, chat_template_kwargs=switch)


def _call(attempt: Any) -> CallText | None:
    """One attempt at a tool call; None where no name can be read."""
    read = read_call(attempt.raw)
    if not is_name(attempt.name):
        return read
    if attempt.status is not ToolCallParseStatus.OK:
        return CallText(attempt.name, attempt.raw) if read is None else read
    if read is not None and read.name == attempt.name and read.arguments:
        return read  # the text as it was sampled
    arguments = attempt.arguments
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    return CallText(attempt.name, arguments)
