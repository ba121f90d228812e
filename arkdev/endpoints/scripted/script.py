"""A script file: exact answers of the scripted model, by turn and question.

::

    answers:
      - turn: 0
        match: 北京
        tool_calls:
          - name: get_current_weather
            arguments: {location: 北京}
      - error: {status: 429, code: ServerOverloaded, message: overloaded.}
        times: 2

The first entry that matches and is not used up answers; what none matches goes to the policy.
Every key is described in docs/scripted-model.md.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from arkdev.endpoints.scripted.conversation import Conversation
from arkdev.errors import ConfigurationError

_HINT = 'the document "The scripted model" of arkdev lists the keys of a script file.'


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ScriptedCall(_Entry):
    """A tool call. `arguments` is an object, or the raw text, which need not be JSON."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    id: str | None = None

    @field_validator("arguments", mode="before")
    @classmethod
    def _object_or_text(cls, value: object) -> object:
        if not isinstance(value, (dict, str)):
            raise ValueError("give an object, or the raw text in quotes")
        return value


class ScriptedError(_Entry):
    """An error answer in Ark's envelope; the request id is added to its message."""

    status: Annotated[int, Field(ge=200, le=599)]
    code: str
    message: str
    param: str = ""
    type: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)


class Match(_Entry):
    """What the last user message has: a text, or with ``{regex: ...}`` a regular expression."""

    text: str = ""
    regex: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"text": value} if isinstance(value, str) else value

    @field_validator("regex")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value

    def fits(self, question: str) -> bool:
        """Whether `question` has it."""
        if self.regex is None:
            return self.text in question
        return re.search(self.regex, question) is not None


class ScriptedAnswer(_Entry):
    """One entry: when it answers (`turn`, `match`, `times`) and what."""

    turn: Annotated[int, Field(ge=0)] | None = None
    match: Match | None = None
    times: Annotated[int, Field(ge=1)] | None = None

    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ScriptedCall] = Field(default_factory=list)
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"] | None = None
    usage: dict[str, Any] | None = None
    latency_s: Annotated[float, Field(ge=0)] | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    error: ScriptedError | None = None
    raw_body: Any = None
    status: Annotated[int, Field(ge=200, le=599)] = 200
    """HTTP status of `raw_body`."""

    @model_validator(mode="after")
    def _keys_go_together(self) -> ScriptedAnswer:
        given = self.model_fields_set
        said = sorted(
            given - {"turn", "match", "times", "latency_s", "error", "raw_body", "status"}
        )
        kinds = [
            *(["error"] if "error" in given else []),
            *(["raw_body"] if "raw_body" in given else []),
        ]
        if len(kinds) + bool(said) > 1:
            raise ValueError(f"{kinds[0]} does not go with {', '.join([*kinds[1:], *said])}")
        if not kinds and not said:
            raise ValueError("says nothing: give content, tool_calls, error or raw_body")
        if "status" in given and "raw_body" not in given:
            raise ValueError("status belongs to raw_body; for an error write error: {status: ...}")
        if self.logprobs is not None and len(self.logprobs) != len(self.token_ids or []):
            raise ValueError("logprobs needs one number for each of token_ids")
        return self

    def fits(self, conversation: Conversation) -> bool:
        """Whether this entry is for this turn and question."""
        if self.turn is not None and self.turn != conversation.turn:
            return False
        return self.match is None or self.match.fits(conversation.question)


class Script(_Entry):
    """The answers of a script file, in order."""

    answers: list[ScriptedAnswer]

    @property
    def has_token_evidence(self) -> bool:
        """Whether an answer carries token ids."""
        return any(answer.token_ids is not None for answer in self.answers)


def load_script(path: Path) -> Script:
    """Read a script file, JSON when its name ends in ``.json``, YAML otherwise.

    Raises `ConfigurationError` with file and line when it cannot be read or is not valid.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the script file: {error.strerror}", where=str(path), hint=_HINT
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            "the script file is not UTF-8", where=str(path), hint="Save it as UTF-8."
        ) from error
    is_json = path.suffix == ".json"
    data = _decode_json(text, path) if is_json else _decode_yaml(text, path)
    try:
        return Script.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        line = None if is_json else _line_of(text, first["loc"])
        raise ConfigurationError(
            _sentence(first["loc"], first["msg"]),
            where=f"{path}:{line}" if line else str(path),
            hint=_HINT,
        ) from error


def _decode_json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"not JSON: {error.msg}", where=f"{path}:{error.lineno}", hint=_HINT
        ) from error


def _decode_yaml(text: str, path: Path) -> Any:
    try:
        data = YAML(typ="safe", pure=True).load(text)
        json.dumps(data)  # what is sent must be JSON
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ConfigurationError(
            f"not YAML: {error.problem or error.context}", where=where, hint=_HINT
        ) from error
    except YAMLError as error:
        raise ConfigurationError(f"not YAML: {error}", where=str(path), hint=_HINT) from error
    except TypeError as error:
        raise ConfigurationError(
            f"a value is not JSON: {error}", where=str(path), hint="Put dates in quotes."
        ) from error
    return data


def _sentence(location: tuple[int | str, ...], message: str) -> str:
    place = ""
    for step in location:
        place += f"[{step}]" if isinstance(step, int) else f".{step}"
    message = message.removeprefix("Value error, ")
    return f"{place.removeprefix('.')}: {message}" if place else message


def _line_of(text: str, location: tuple[int | str, ...]) -> int | None:
    """The line of the deepest part of `location` that the file has, counted from 1."""
    node: Node | None = YAML().compose(text)
    if node is None:
        return None
    line = int(node.start_mark.line) + 1
    for step in location:
        found = _child(node, step)
        if found is None:
            break
        key, node = found
        line = int(key.start_mark.line) + 1
    return line


def _child(node: Node | None, step: int | str) -> tuple[Node, Node] | None:
    """The node that marks the place of `step` inside `node`, and the node of its value."""
    if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    if isinstance(node, MappingNode):
        return next(((k, v) for k, v in node.value if k.value == step), None)
    return None
