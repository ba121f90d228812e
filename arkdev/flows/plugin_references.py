"""The ``module:function`` of plugins that a job.py or a script names by the functions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from arkdev.errors import PluginLoadError
from arkdev.plugin.loading import LoadedPlugin
from arkdev.plugin.source import innermost, place_of


def reference_of(function: Any, *, root: Path) -> str:
    """Return the ``module:function`` of a decorated function, also of the script that runs.

    Raises `PluginLoadError` for one that lies outside of the workspace.
    """
    file = Path(place_of(function).rpartition(":")[0])
    name = getattr(innermost(function), "__qualname__", "")
    try:
        path = file.resolve().relative_to(root.resolve()).with_suffix("")
    except ValueError:
        path = Path()
    if not name or not path.parts:
        raise PluginLoadError(
            f"{function!r} is no function of the workspace",
            where=place_of(function) if callable(function) else "",
            hint=f"plugins of a function lie below {root}",
        )
    parts = path.parts[:-1] if path.name == "__init__" else path.parts
    return f"{'.'.join(parts)}:{name}"


def with_reference(loaded: LoadedPlugin, *, root: Path) -> LoadedPlugin:
    """Return a plugin with a reference by which another process can load it.

    Raises what `reference_of` raises.
    """
    if ":" in loaded.reference:
        return loaded
    return replace(loaded, reference=reference_of(loaded.function, root=root))
