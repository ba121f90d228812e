"""Rendering by the tokenizer's own chat template."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from jinja2 import TemplateError

from arkdev.backends.local.answer_text import (
    CALL,
    END_THINK,
    THINK,
    split_bare_call,
    split_calls,
    split_reasoning,
    tool_call_documents,
)
from arkdev.backends.local.common_beginning import num_common
from arkdev.backends.local.rendering import AnsweredHistory, Messages, ParsedAnswer, Tools
from arkdev.backends.local.template_messages import template_messages
from arkdev.errors import ConfigurationError

_EMPTY_REASONING = re.compile(rf"{THINK}\s*{END_THINK}\s*")
"""Templates have it with any line breaks."""
_LAST_EMPTY_REASONING = re.compile(rf"{_EMPTY_REASONING.pattern}\Z")
_PROBE = "arkdev"
_CANNOT_WRITE = (
    *(TemplateError, ArithmeticError, AttributeError, LookupError),
    *(RecursionError, TypeError, ValueError),
)
"""What templates raise for messages that they were not written for."""
_BARE = '"parameters"'
"""In the templates that write calls as Llama 3 does."""


@dataclass(frozen=True)
class _Ending:
    """Where a rendering ends an answer: the place of its closing token's text."""

    number: int
    """Of the closing tokens in the text, from 1."""
    text: str
    start: int
    end: int


class TemplateRendering:
    """Implements `arkdev.backends.local.rendering.Rendering` with a tokenizer's chat template.

    Templates know whole conversations only. What follows an answer is what the template writes
    behind the token that closes it, provided that it writes all before it as it did when the
    answer was the last message. An empty reasoning block says nothing: templates put one into the
    generation prompt or around the last answer and leave it out later, which changes no message.
    """

    name = "chat template"

    def __init__(self, tokenizer: Any, *, end_token_ids: frozenset[int]) -> None:
        """`end_token_ids` are those that the model's folder names.

        Raises `ConfigurationError` when the tokenizer has no chat template.
        """
        template = tokenizer.chat_template
        if not template:
            raise ConfigurationError(
                "the model's tokenizer has no chat template",
                hint="use an instruct model, or put a chat_template.jinja into its folder",
            )
        self._tokenizer = tokenizer
        text = template if isinstance(template, str) else str(template)
        self.has_thinking_switch = "enable_thinking" in text
        self._knows_reasoning = END_THINK in text or "reasoning_content" in text
        self._knows_calls = "tool_calls" in text
        self._split_calls = split_calls if CALL in text or _BARE not in text else split_bare_call
        self._knows_developer = "developer" in text
        closing = self._closing_token()
        self.stop_token_ids = end_token_ids | ({closing} if closing is not None else set())
        marks = sorted(tokenizer.convert_ids_to_tokens(sorted(self.stop_token_ids)))
        self._closings = re.compile("|".join(map(re.escape, marks)) or r"(?!)")

    def render(
        self, messages: Messages, *, tools: Tools | None = None, thinking: bool | None = None
    ) -> list[int]:
        """Return the ids of a whole prompt."""
        plain = self._plain(messages)
        return self._encode(self._text(plain, tools, thinking, is_prompt=True))

    def extend(
        self,
        messages: Messages,
        *,
        after: AnsweredHistory,
        tools: Tools | None = None,
        thinking: bool | None = None,
    ) -> list[int] | None:
        """Return what follows `after`, or None."""
        # what the template writes of known messages is thrown away
        known = self._plain(messages[: after.num_messages], blank_broken=True)
        new = self._plain(messages[after.num_messages :])
        text_known = self._text(known, tools, thinking, is_prompt=False)
        text = self._text([*known, *new], tools, thinking, is_prompt=True)
        was_closed = bool(after.token_ids) and after.token_ids[-1] in self.stop_token_ids
        if not was_closed and self._is_in_reasoning(after):
            return None  # only the template knows what closes it
        ending = self._last_ending(text_known)
        if ending is None:
            return None
        same = next(islice(self._closings.finditer(text), ending.number - 1, None), None)
        if same is None or same[0] != ending.text:
            return None
        before, before_now = text_known[: ending.end], text[: same.end()]
        if before != before_now and _said(before) != _said(before_now):
            return None
        # from the closing token on: what stands at the very beginning is encoded otherwise by some
        added = self._encode(text[same.start() :])
        if not added or self._tokenizer.convert_ids_to_tokens(added[0]) != ending.text:
            return None
        return added[1:] if was_closed else added

    def answer_ids(
        self, messages: Messages, *, tools: Tools | None = None, thinking: bool | None = None
    ) -> list[int]:
        """Return the ids of the last message."""
        plain = self._plain(messages)
        prompt = self._text(plain[:-1], tools, thinking, is_prompt=True)
        text = self._text(plain, tools, thinking, is_prompt=False)
        ending = self._last_ending(text)
        text = text[: ending.end] if ending is not None else text
        for opening in (prompt, _LAST_EMPTY_REASONING.sub("", prompt)):
            if text.startswith(opening):
                break
        else:
            ids = self._encode(text)
            return ids[num_common(ids, self._encode(prompt)) :]
        answer = text[len(opening) :]
        if not plain[-1].get("reasoning_content"):
            answer = _EMPTY_REASONING.sub("", answer, count=1)
        return self._encode(answer)

    def parse(
        self, token_ids: Sequence[int], *, prompt_token_ids: Sequence[int] = ()
    ) -> ParsedAnswer:
        """Read an answer."""
        ids = list(token_ids)
        if ids and ids[-1] in self.stop_token_ids:
            del ids[-1]
        text = self.decode(ids)
        reasoning: str | None = None
        calls: tuple[dict[str, Any], ...] = ()
        if self._knows_reasoning:
            has_begun = self._ends_in_reasoning(prompt_token_ids)
            reasoning, text = split_reasoning(text, has_begun=has_begun)
        if self._knows_calls:
            text, written = self._split_calls(text)
            calls = tool_call_documents(
                written, token_ids=token_ids, prompt_token_ids=prompt_token_ids
            )
        return ParsedAnswer(text, reasoning, calls)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""
        text: str = self._tokenizer.decode(
            list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def _plain(self, messages: Messages, *, blank_broken: bool = False) -> list[dict[str, Any]]:
        plain = template_messages(messages, blank_broken=blank_broken)
        if not self._knows_developer:
            for message in plain:
                if message.get("role") == "developer":
                    message["role"] = "system"
        return plain

    def _text(
        self,
        plain: list[dict[str, Any]],
        tools: Tools | None,
        thinking: bool | None,
        *,
        is_prompt: bool,
    ) -> str:
        switch = self._switch(thinking)
        try:
            text: str = self._tokenizer.apply_chat_template(
                plain,
                tools=[dict(tool) for tool in tools] if tools else None,
                add_generation_prompt=is_prompt,
                tokenize=False,
                **switch,
            )
        except _CANNOT_WRITE as error:
            raise ConfigurationError(
                f"the model's chat template cannot write these messages: {error}",
                hint="`arkdev doctor tokens --model M` shows what a template can write",
            ) from error
        return text

    def _switch(self, thinking: bool | None) -> dict[str, bool]:
        if thinking is None:
            return {}
        if self.has_thinking_switch:
            return {"enable_thinking": thinking}
        if not thinking and not self._knows_reasoning:
            return {}  # there is none to switch off
        raise ConfigurationError(
            "thinking: the model's chat template has no such switch",
            hint="leave `thinking` out",
        )

    def _encode(self, text: str) -> list[int]:
        # quietly: how long a prompt may be is the engine's to say
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False, verbose=False)
        return ids

    def _closing_token(self) -> int | None:
        """The special token that the template writes behind an answer; None: it writes none."""
        dialogue = [
            {"role": "user", "content": _PROBE},
            {"role": "assistant", "content": _PROBE},
        ]
        text = self._text(dialogue, None, None, is_prompt=False)
        _, _, rest = text.rpartition(_PROBE)
        added = self._tokenizer.added_tokens_decoder
        special = {token for token, entry in added.items() if entry.special}
        return next((token for token in self._encode(rest.strip()) if token in special), None)

    def _last_ending(self, text: str) -> _Ending | None:
        found = list(self._closings.finditer(text))
        if not found:
            return None
        return _Ending(len(found), found[-1][0], found[-1].start(), found[-1].end())

    def _is_in_reasoning(self, after: AnsweredHistory) -> bool:
        if not self._knows_reasoning:
            return False
        text = self.decode(after.token_ids)
        has_begun = self._ends_in_reasoning(after.prompt_token_ids)
        return (has_begun or text.lstrip().startswith(THINK)) and END_THINK not in text

    def _ends_in_reasoning(self, prompt_token_ids: Sequence[int]) -> bool:
        tail = self.decode(prompt_token_ids[-16:])
        return tail.rstrip().endswith(THINK)


def _said(text: str) -> str:
    return _EMPTY_REASONING.sub("", text)
