"""Finding plugins by ``module:function`` in a workspace (SURFACE WS-23, JOB-49, Y-30).

Modules are looked for in the workspace's root whatever the current directory is. A name of the
standard library is never taken from the workspace, an installed package of the same name never
hides the workspace's own, and modules of another workspace that were loaded before under the same
name are left alone but not reused.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.machinery
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from arkdev.errors import ConfigurationError, PluginLoadError
from arkdev.plugin.decorators import Plugin, plugin_of
from arkdev.plugin.source import place_of, place_of_exception


@dataclass(frozen=True)
class LoadedPlugin:
    """A plugin ready to be called: the decorated function and what its decorator recorded."""

    function: Any
    plugin: Plugin
    reference: str
    """``module:function``"""


_OURS = frozenset({"arkdev", "ark_sdk"})


class _WorkspaceFinder:
    """Resolves top-level names of the workspace's root, before installed packages."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a top-level module of the workspace; submodules follow from it."""
        if path is not None or fullname in sys.stdlib_module_names or fullname in _OURS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, [self.root])
        if (
            spec is not None
            and spec.origin is None
            and not _holds_python(Path(self.root, fullname))
        ):
            return None  # a folder of data, say `datasets`: no rival of a package of that name
        return spec

    def owns(self, name: str, module: ModuleType) -> bool:
        """Tell whether `module` was loaded from this workspace (not from a .venv inside it)."""
        top = os.path.join(self.root, name.partition(".")[0])
        place = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), "")
        return place == top or place.startswith((f"{top}.", f"{top}{os.sep}"))

    def has(self, top: str) -> bool:
        """Tell whether the workspace has a module or folder of that name."""
        return self.find_spec(top, None) is not None


def _holds_python(folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) for pattern in ("*.py", "*/*.py"))


def use_workspace(root: Path) -> None:
    """Make the modules of the workspace at `root` importable, also for imports made later on.

    Modules of a workspace used before are forgotten, so that its `plugins` is not taken for this
    one's; functions already loaded from it go on working.
    """
    for other in [finder for finder in sys.meta_path if isinstance(finder, _WorkspaceFinder)]:
        if other.root == str(root.resolve()):
            return
        sys.meta_path.remove(other)
        _forget([name for name, module in sys.modules.items() if other.owns(name, module)])
    sys.meta_path.insert(0, _WorkspaceFinder(root.resolve()))
    importlib.invalidate_caches()


def _forget(names: list[str]) -> None:
    for name in names:
        del sys.modules[name]


def _forget_namesakes(module_name: str, *, root: Path) -> None:
    """Forget an installed package that stands where a module of the workspace is asked for."""
    finder = _WorkspaceFinder(root.resolve())
    top = module_name.partition(".")[0]
    if finder.has(top):
        namesakes = (item for item in sys.modules.items() if item[0].partition(".")[0] == top)
        _forget([name for name, module in namesakes if not finder.owns(name, module)])


def load_plugin(reference: Any, *, root: Path) -> LoadedPlugin:
    """Return the plugin that `reference` names: ``module:function``, or a decorated function.

    Raises `PluginLoadError` when the reference is malformed, the module cannot be imported (with
    the user's file:line), the name is missing (with the plugins that were found) or undecorated.
    """
    if not isinstance(reference, str):
        return _loaded(reference, name=getattr(reference, "__name__", repr(reference)))
    module_name, separator, attribute = reference.partition(":")
    if separator and ("/" in module_name or module_name.endswith(".py")):
        dotted = module_name.removeprefix("./").removesuffix(".py").replace("/", ".")
        raise PluginLoadError(
            f"{reference!r} names a file, not a module", hint=f"write {dotted}:{attribute}"
        )
    if not separator or not module_name or not attribute:
        raise PluginLoadError(
            f"{reference!r} is not of the form module:function",
            hint="for example plugins.weather_rollout:demo_rollout",
        )
    module = _import(module_name, root=root)
    target: Any = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise PluginLoadError(
                f"{module_name} has no {attribute!r}",
                where=getattr(module, "__file__", "") or "",
                hint=_near(part, [*vars(module)]) + _what_was_found(module),
            )
        target = getattr(target, part)
    return _loaded(target, name=reference)


def _loaded(target: Any, *, name: str) -> LoadedPlugin:
    plugin = plugin_of(target)
    if plugin is None:
        raise PluginLoadError(
            f"{name} is not a plugin: it has no decorator",
            where=place_of(target) if callable(target) else "",
            hint="decorate it with @rollout, @single_grader or @group_grader",
        )
    return LoadedPlugin(function=target, plugin=plugin, reference=name)


def _import(module_name: str, *, root: Path) -> ModuleType:
    file = root / Path(*module_name.split("."))
    use_workspace(root)
    _forget_namesakes(module_name, root=root)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise PluginLoadError(
                f"no module {module_name} in {root}",
                hint=_near(module_name, _modules(root))
                + f"expected {file}.py; {_modules_found(root)}",
            ) from error
        raise import_failed(module_name, error, root=root) from error
    except ConfigurationError:  # a decorator's own words, with the user's file:line
        raise
    except (Exception, SystemExit) as error:  # a user's module can raise anything
        raise import_failed(module_name, error, root=root) from error


def import_failed(module_name: str, error: BaseException, *, root: Path) -> PluginLoadError:
    """Return what to raise for an exception that left a module while it was imported."""
    if isinstance(error, ModuleNotFoundError):
        hint = _how_to_install(error.name or "", root=root)
    elif isinstance(error, SyntaxError):
        hint = "correct the syntax there; nothing of the module has run"
    else:
        hint = "the module's own top-level code failed; run it with --debug for the traceback"
    return PluginLoadError(
        f"importing {module_name} failed: {type(error).__name__}: {error}",
        where=place_of_exception(error),
        hint=getattr(error, "hint", "") or hint,
    )


def _how_to_install(module_name: str, *, root: Path) -> str:
    """Say how to get a missing module; most are called like the package that brings them."""
    package = module_name.partition(".")[0]
    file = root / "requirements.txt"
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    listed = {_normal(name) for name in re.findall(r"^[\w.-]+", text, re.MULTILINE)}
    if _normal(package) in listed:
        return f"run pip install -r requirements.txt, which has {package}"
    return f"install {package} and add it to requirements.txt"


def _normal(package: str) -> str:
    return package.lower().replace("_", "-")


def _near(name: str, known: Sequence[str]) -> str:
    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"did you mean {matches[0]!r}? " if matches else ""


def _what_was_found(module: ModuleType) -> str:
    plugins = plugins_in(module)
    if not plugins:
        return "the module has no decorated function"
    return "it has " + ", ".join(
        f"{found.reference} ({found.plugin.kind.value})" for found in plugins
    )


def plugins_in(module: ModuleType) -> list[LoadedPlugin]:
    """Return the decorated functions of a module, in the order of their definition."""
    found = ((name, value, plugin_of(value)) for name, value in vars(module).items())
    return [
        LoadedPlugin(function=value, plugin=plugin, reference=f"{module.__name__}:{name}")
        for name, value, plugin in found
        if plugin is not None and callable(value)
    ]


def _modules(root: Path) -> list[str]:
    files = sorted(
        path.relative_to(root).with_suffix("")
        for pattern in ("*.py", "*/*.py")
        for path in root.glob(pattern)
        if not path.name.startswith((".", "__"))
    )
    return [".".join(path.parts) for path in files]


def _modules_found(root: Path) -> str:
    names = _modules(root)[:12]
    return "modules found: " + ", ".join(names) if names else f"{root} has no Python files"


def require_kind(loaded: LoadedPlugin, *, is_rollout: bool) -> LoadedPlugin:
    """Return `loaded` when it can stand where a rollout (or a grader) is wanted.

    Raises `PluginLoadError` when it is of the other sort.
    """
    if loaded.plugin.kind.is_rollout == is_rollout:
        return loaded
    wanted = "rollout" if is_rollout else "grader"
    raise PluginLoadError(
        f"{loaded.reference} is a {loaded.plugin.kind.value}, not a {wanted}",
        where=loaded.plugin.place,
    )
