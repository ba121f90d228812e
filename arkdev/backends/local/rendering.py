"""Messages and token ids: what a model's folder says about turning one into the other.

Messages become ids by a family's renderer where the package `renderers` has one that writes what
the folder's own chat template writes, and by that template otherwise. Nothing that was sampled goes
through text again: `Rendering.extend` gives only the ids that follow it. A model that answered
``[7, 8, END]`` to ``[5, 6]`` and is told a tool's result::

    render([question])                        [5, 6]
    extend([question, answer, result], ...)   [GLUE, 9, 6]     what follows END in its template
    the next prompt                           [5, 6, 7, 8, END, GLUE, 9, 6]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from arkdev.errors import ConfigurationError, MissingExtraError

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ParsedAnswer:
    """What sampled ids say, in the OpenAI form.

    Nothing is mended. Of a tool call whose JSON is broken or was cut ``arguments`` is the raw text
    of the whole call where a name can be read, so that it does not parse; where none can be read
    the call stays in `content`, marks and all.
    """

    content: str
    reasoning: str | None = None
    """None: the answer has no such part."""
    tool_calls: tuple[dict[str, Any], ...] = ()
    """``{"id", "type": "function", "function": {"name", "arguments"}}``. Well-formed arguments are
    the text that was sampled. The ids follow from the token ids of prompt and answer."""

    @property
    def message(self) -> dict[str, Any]:
        """The assistant message that this answer is."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content or None}
        if not self.tool_calls:
            message["content"] = self.content
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [dict(call) for call in self.tool_calls]
        return message


@dataclass(frozen=True)
class AnsweredHistory:
    """Ids that are there already: a prompt and the answer sampled to it."""

    num_messages: int
    """Of the messages that they stand for; the answer is the last."""
    prompt_token_ids: Sequence[int]
    token_ids: Sequence[int]
    """As sampled, with the stop token unless the answer was cut."""


class Rendering(Protocol):
    """How one model writes messages; safe to use from several threads.

    `render`, `extend` and `answer_ids` raise `ConfigurationError` for messages that the template
    refuses, and for `thinking` where it has no such switch (`has_thinking_switch`). None leaves the
    switch to the template.
    """

    name: str
    """``chat template``, or the renderer's name."""
    stop_token_ids: frozenset[int]
    """Each ends an answer (field case 1.5): those of generation_config.json and of the tokenizer,
    and the one that the template closes an answer with."""
    has_thinking_switch: bool

    def render(
        self, messages: Messages, *, tools: Tools | None = None, thinking: bool | None = None
    ) -> list[int]:
        """Return the ids of a whole prompt, up to where the answer begins."""
        ...

    def extend(
        self,
        messages: Messages,
        *,
        after: AnsweredHistory,
        tools: Tools | None = None,
        thinking: bool | None = None,
    ) -> list[int] | None:
        """Return the ids that follow those of `after` in a prompt of `messages`.

        They begin with what the template writes after an answer, or with the end of the answer
        itself where it was cut. None: the template writes an earlier message otherwise now that
        more follows (it drops reasoning, say), so that `after` is no beginning of the prompt.
        """
        ...

    def answer_ids(
        self, messages: Messages, *, tools: Tools | None = None, thinking: bool | None = None
    ) -> list[int]:
        """Return the ids of the last message, an answer, as if they had been sampled.

        They are those that the template writes, with the token that closes an answer, but without
        an empty reasoning block.
        """
        ...

    def parse(
        self, token_ids: Sequence[int], *, prompt_token_ids: Sequence[int] = ()
    ) -> ParsedAnswer:
        """Read an answer. `prompt_token_ids` tell whether the prompt had begun its reasoning."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""
        ...


def open_rendering(folder: Path) -> Rendering:
    """Return the rendering of a model's folder (config, tokenizer and chat template).

    Raises `ConfigurationError` when the folder has no tokenizer or no chat template, and
    `MissingExtraError` without the extra ``local``.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {folder}", hint="--model NAME or FOLDER")
    try:
        opening: Any = import_module("arkdev.backends.local.rendering_choice")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("arkdev"):
            raise
        raise MissingExtraError(
            f"a model's chat template needs the package {error.name}",
            hint="pip install 'arkdev[local]'",
        ) from error
    rendering: Rendering = opening.chosen_rendering(folder)
    return rendering
