"""Which keys of ``sample.extra`` a grader reads, found in its source without running it.

The sample is followed from the grader's second parameter through assignments and through calls of
functions of the workspace. What is found: ``extra["k"]``, ``extra.get("k")`` and its like, ``"k" in
extra``, and patterns of ``match``. A key that is computed cannot be found, and is told as such.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arkdev.job.paths import shown_path
from arkdev.plugin.source import innermost

_SAMPLE, _EXTRA = "sample", "extra"
_READING = ("get", "pop", "setdefault")
_SAME_THING = ("copy", "deepcopy", "model_copy", "model_dump", "dict")
_MAX_HOPS = 8
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class ExtraRead:
    """A key that is read."""

    key: str
    where: str
    """file:line of the first place."""
    is_required: bool
    """True when it is only read as ``extra["k"]``, which fails where the key is missing."""


@dataclass
class ExtraReads:
    """What one grader reads."""

    reads: list[ExtraRead] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """What could not be found out, each with its place."""


def extra_reads(reference: str | Callable[..., Any], *, root: Path) -> ExtraReads:
    """Return what the grader `reference` (``module:function`` or a function) reads of ``extra``."""
    modules = _Modules(root)
    found = modules.grader(reference)
    if found is None:
        return ExtraReads(unknown=[f"{_name(reference)}: its source was not found"])
    module, function = found
    reading = _Reading(modules)
    parameters = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    sample = "sample" if "sample" in parameters else [*parameters, "", ""][1]
    reading.follow(module, function, {sample: _SAMPLE})
    return reading.result()


def _name(reference: str | Callable[..., Any]) -> str:
    if isinstance(reference, str):
        return reference
    return getattr(reference, "__qualname__", repr(reference))


@dataclass
class _Module:
    path: Path
    functions: dict[str, _Function] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    """Names of texts at the top level."""
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name → (module, name in it)."""
    aliases: dict[str, str] = field(default_factory=dict)


class _Modules:
    """The workspace's own modules, parsed as they are needed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[Path, _Module | None] = {}

    def grader(self, reference: str | Callable[..., Any]) -> tuple[_Module, _Function] | None:
        if isinstance(reference, str):
            module_name, _, attribute = reference.partition(":")
            module = self._named(module_name)
            return self.function(module, attribute) if module else None
        code = getattr(innermost(reference), "__code__", None)
        module = self._parsed(Path(code.co_filename)) if code else None
        if code is None or module is None:
            return None
        for function in module.functions.values():
            first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
            if first == code.co_firstlineno:
                return module, function
        return None

    def function(self, module: _Module, name: str) -> tuple[_Module, _Function] | None:
        """Find a function by its name in a module, through imports and other names."""
        for _ in range(_MAX_HOPS):
            if name in module.functions:
                return module, module.functions[name]
            if name in module.aliases:
                name = module.aliases[name]
            elif name in module.imports:
                module_name, name = module.imports[name]
                following = self._named(module_name)
                if following is None:
                    return None
                module = following
            else:
                return None
        return None

    def called(self, module: _Module, name: ast.expr) -> tuple[_Module, _Function] | None:
        """Find what ``function(...)`` or ``module.function(...)`` calls."""
        if isinstance(name, ast.Name):
            return self.function(module, name.id)
        if not isinstance(name, ast.Attribute) or not isinstance(name.value, ast.Name):
            return None
        origin, part = module.imports.get(name.value.id, ("", ""))
        imported = self._named(f"{origin}.{part}".strip(".")) if origin or part else None
        return self.function(imported, name.attr) if imported else None

    def _named(self, name: str) -> _Module | None:
        place = self._root / Path(*name.split("."))
        return self._parsed(place.with_name(f"{place.name}.py")) or self._parsed(
            place / "__init__.py"
        )

    def _parsed(self, path: Path) -> _Module | None:
        if path not in self._known:
            try:
                tree = ast.parse(path.read_bytes())
            except (OSError, SyntaxError, ValueError):
                self._known[path] = None
            else:
                self._known[path] = self._module(path, tree)
        return self._known[path]

    def _module(self, path: Path, tree: ast.Module) -> _Module:
        module = _Module(path)
        for node in tree.body:
            if isinstance(node, _Function):
                module.functions[node.name] = node
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(path, node)
                for alias in node.names:
                    module.imports[alias.asname or alias.name] = (origin, alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        module.imports[alias.asname] = (alias.name, "")
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                _note_assignment(module, node.targets[0].id, node.value)
        return module

    def _origin(self, path: Path, node: ast.ImportFrom) -> str:
        """The dotted name of the module that a ``from`` import names, relative ones resolved."""
        if not node.level:
            return node.module or ""
        folder = path.parents[node.level - 1]
        parts = folder.relative_to(self._root).parts if folder.is_relative_to(self._root) else ()
        return ".".join([*parts, *([node.module] if node.module else [])])


def _note_assignment(module: _Module, name: str, value: ast.expr) -> None:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        module.constants[name] = value.value
    elif isinstance(value, ast.Name):
        module.aliases[name] = value.id


class _Reading:
    """Follows the sample through functions and collects what is read."""

    def __init__(self, modules: _Modules) -> None:
        self._modules = modules
        self._seen: set[tuple[int, tuple[tuple[str, str], ...]]] = set()
        self._reads: dict[str, list[tuple[str, bool]]] = {}
        self._unknown: list[str] = []

    def result(self) -> ExtraReads:
        reads = [
            ExtraRead(key, places[0][0], all(is_required for _, is_required in places))
            for key, places in self._reads.items()
        ]
        return ExtraReads(reads, self._unknown)

    def follow(self, module: _Module, function: _Function, kinds: dict[str, str]) -> None:
        """Go through a function some of whose names are the sample or its ``extra``."""
        seen = (id(function), tuple(sorted(kinds.items())))
        if seen in self._seen:
            return
        self._seen.add(seen)
        kinds = dict(kinds)
        while _bind(function, kinds):
            pass
        nodes = [node for node in ast.walk(function) if isinstance(node, (ast.expr, ast.stmt))]
        for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
            for key, is_required in _keys_read(node, kinds):
                self._note(module, key, is_required=is_required)
            if isinstance(node, ast.Call):
                self._follow_call(module, node, kinds)

    def _note(self, module: _Module, key: ast.expr, *, is_required: bool) -> None:
        where = f"{shown_path(module.path)}:{key.lineno}"
        text: Any = key.value if isinstance(key, ast.Constant) else None
        if isinstance(key, ast.Name):
            text = module.constants.get(key.id)
        if isinstance(text, str):
            self._reads.setdefault(text, []).append((where, is_required))
        elif (note := f"{where}: a key of extra that is computed") not in self._unknown:
            self._unknown.append(note)

    def _follow_call(self, module: _Module, call: ast.Call, kinds: dict[str, str]) -> None:
        found = self._modules.called(module, call.func)
        if found is None:
            return
        arguments = found[1].args
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        given = {
            **dict(zip(names, call.args, strict=False)),
            **{keyword.arg: keyword.value for keyword in call.keywords if keyword.arg},
        }
        passed = {name: kind for name, value in given.items() if (kind := _kind(value, kinds))}
        if passed:
            self.follow(*found, passed)


def _bind(function: _Function, kinds: dict[str, str]) -> bool:
    """Give names that are assigned the sample or its ``extra`` their kinds; True if any is new."""
    before = len(kinds)
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            targets = [node.target]
        else:
            continue
        kind = _kind(node.value, kinds) if node.value else None
        for target in targets:
            if kind and isinstance(target, ast.Name):
                kinds.setdefault(target.id, kind)
    return len(kinds) > before


def _kind(node: ast.expr, kinds: dict[str, str]) -> str | None:
    """Say whether an expression is the sample or its ``extra``; None when it is neither."""
    if isinstance(node, ast.Name):
        return kinds.get(node.id)
    if isinstance(node, ast.Attribute):
        return _EXTRA if node.attr == "extra" and _kind(node.value, kinds) == _SAMPLE else None
    if isinstance(node, ast.Subscript):
        is_of_sample = _kind(node.value, kinds) == _SAMPLE and _is_extra(node.slice)
        return _EXTRA if is_of_sample else None
    if isinstance(node, ast.Call):
        return _kind_of_call(node, kinds)
    choices: list[ast.expr] = []
    if isinstance(node, ast.BoolOp):
        choices = node.values
    elif isinstance(node, ast.IfExp):
        choices = [node.body, node.orelse]
    elif isinstance(node, ast.NamedExpr):
        choices = [node.value]
    return next((kind for choice in choices if (kind := _kind(choice, kinds))), None)


def _kind_of_call(call: ast.Call, kinds: dict[str, str]) -> str | None:
    function = call.func
    if isinstance(function, ast.Attribute):
        kind = _kind(function.value, kinds)
        if kind == _SAMPLE and function.attr == "get" and call.args and _is_extra(call.args[0]):
            return _EXTRA
        if kind and function.attr in _SAME_THING:
            return kind
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name == "cast" and len(call.args) == 2:
        return _kind(call.args[1], kinds)
    return _kind(call.args[0], kinds) if name in _SAME_THING and call.args else None


def _is_extra(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "extra"


def _keys_read(node: ast.AST, kinds: dict[str, str]) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the keys of ``extra`` that a node reads, and whether it fails without them."""
    if isinstance(node, ast.Subscript):
        if isinstance(node.ctx, ast.Load) and _kind(node.value, kinds) == _EXTRA:
            yield node.slice, True
    elif isinstance(node, ast.Call):
        function = node.func
        if (
            isinstance(function, ast.Attribute)
            and function.attr in _READING
            and node.args
            and _kind(function.value, kinds) == _EXTRA
        ):
            yield node.args[0], False
    elif isinstance(node, ast.Compare):
        if (
            isinstance(node.ops[0], (ast.In, ast.NotIn))
            and _kind(node.comparators[0], kinds) == _EXTRA
        ):
            yield node.left, False
    elif isinstance(node, ast.Match) and _kind(node.subject, kinds) == _EXTRA:
        for case in node.cases:
            if isinstance(case.pattern, ast.MatchMapping):
                yield from ((key, False) for key in case.pattern.keys)
