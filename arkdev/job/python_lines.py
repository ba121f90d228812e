"""On which line a job.py writes each key of its job, as far as its text tells."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from arkdev.job.problems import KeyPath

_JOB = "ModelCustomizationJob"


def lines_of_job(text: str) -> dict[KeyPath, int]:
    """Return the line (from 1) of each key in the one call that makes a job.

    Keys are followed through keyword arguments, dicts and lists that stand in the call itself; what
    comes in by a variable has the line of that. Empty when there is no such call, or more than one.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node) == _JOB]
    return dict(_lines(calls[0], ())) if len(calls) == 1 else {}


def _name(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _lines(node: ast.expr, path: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    for key, line, value in _children(node):
        yield (*path, key), line
        yield from _lines(value, (*path, key))


def _children(node: ast.expr) -> Iterator[tuple[str | int, int, ast.expr]]:
    """Yield (key, line, value) of a call's keywords, a dict's entries, a list's items."""
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg is not None:
                yield keyword.arg, keyword.lineno, keyword.value
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, key.lineno, value
    elif isinstance(node, ast.List):
        for index, item in enumerate(node.elts):
            yield index, item.lineno, item
