"""YAML by the rules of version 1.2, with the line of every key (field cases 6.3, 6.4, 6.6).

Scalars stay the text that the author wrote (``no``, ``0123``, ``12:30``, a date); the job's field
types make numbers and booleans of them. Only where a value has no declared type does its YAML type
count: there `PlainScalar` tells unquoted text from a quoted one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from arkdev.job.hyperparameters import parse_number
from arkdev.job.problems import KeyPath, Problem

MAX_DEPTH = 100
MAX_VALUES = 50_000
"""Aliases counted as often as they are used: a few lines of them can stand for billions."""

_STRING = "tag:yaml.org,2002:str"
_NULL = "tag:yaml.org,2002:null"
_STANDARD_TAG = "tag:yaml.org,2002:"


class PlainScalar(str):
    """Unquoted text."""

    def as_typed(self) -> str | int | float | bool:
        """Return the value by YAML's types; numbers with leading zeros stay text."""
        if self.lower() in ("true", "false"):
            return self.lower() == "true"
        digits = self.lstrip("+-")
        if len(digits) > 1 and digits.isdigit() and digits.startswith("0"):
            return str(self)
        number = parse_number(self)
        return str(self) if number is None else number


@dataclass
class YamlTree:
    """A document as plain dicts, lists and text, with the line (from 1) of each path in it."""

    value: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def parse_yaml(text: str, *, source: str) -> YamlTree:
    """Parse one document. What is wrong with its form is in `problems`, with places in `source`."""
    builder = _Builder(source)
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.composer.warn_double_anchors = False  # YAML 1.2 allows them: the nearest above counts
        root = yaml.compose(text)
        if root is not None:
            builder.tree.value = builder.build(root, ())
    except YAMLError as error:
        builder.tree.problems.append(_syntax_problem(error, text, source=source))
    except RecursionError:
        builder.tree.problems.append(Problem(source, f"nested more than {MAX_DEPTH} levels deep"))
    except _TooMuchError as error:
        builder.tree.problems.append(Problem(source, str(error)))
    return builder.tree


def _syntax_problem(error: YAMLError, text: str, *, source: str) -> Problem:
    if isinstance(error, ReaderError):
        place = min(error.position, len(text) - 1)
        line = text.count("\n", 0, place) + 1
        column = place - text.rfind("\n", 0, place)
        return Problem(
            f"{source}:{line}:{column}",
            f"not valid YAML: the control character U+{ord(text[place]):04X}",
        )
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
    if isinstance(error, MarkedYAMLError):
        reason = ", ".join(part for part in (error.context, error.problem) if part)
    else:
        reason = str(error).partition("\n")[0]
    return Problem(where, f"not valid YAML: {reason}")


class _TooMuchError(Exception):
    """A document that no job needs, and that would take all memory."""


class _Builder:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tree = YamlTree()
        self._num_values = 0
        self._open: set[int] = set()
        """Nodes under construction, to notice an alias that contains itself."""

    def _problem(self, node: Node, message: str) -> None:
        where = f"{self.source}:{node.start_mark.line + 1}"
        self.tree.problems.append(Problem(where, message))

    def build(self, node: Node, path: KeyPath) -> Any:
        self._num_values += 1
        if self._num_values > MAX_VALUES:
            raise _TooMuchError(f"more than {MAX_VALUES} values, aliases counted in full")
        if len(path) > MAX_DEPTH:
            raise _TooMuchError(f"nested more than {MAX_DEPTH} levels deep")
        if id(node) in self._open:
            self._problem(node, "an alias contains itself")
            return None
        if not str(node.tag).startswith(_STANDARD_TAG):
            self._problem(node, f"the tag {node.tag} has no meaning here")
        if isinstance(node, ScalarNode):
            return _scalar(node)
        self._open.add(id(node))
        try:
            if isinstance(node, SequenceNode):
                return [self._item(item, (*path, i)) for i, item in enumerate(node.value)]
            assert isinstance(node, MappingNode)
            return self._mapping(node, path)
        finally:
            self._open.discard(id(node))

    def _item(self, node: Node, path: KeyPath) -> Any:
        self.tree.lines[path] = node.start_mark.line + 1
        return self.build(node, path)

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        first_lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode) or key_node.value == "<<":
                self._problem(key_node, "keys are plain text; merge keys (<<) are not YAML 1.2")
                continue
            key = str(key_node.value)
            line = key_node.start_mark.line + 1
            if key in values:
                self._problem(
                    key_node,
                    f"key {key!r} is here again, first on line {first_lines[key]}"
                    + ("; only one rollout is allowed" if key == "rollout" else ""),
                )
                continue
            first_lines[key] = line
            self.tree.lines[(*path, key)] = line
            values[key] = self.build(value_node, (*path, key))
        return values


def _scalar(node: ScalarNode) -> str | None:
    if node.tag == _NULL:
        return None
    text = str(node.value)
    is_plain = node.style is None and node.tag != _STRING
    return PlainScalar(text) if is_plain else text
