"""The packages of the environment that plugins are written in, as its own interpreter sees them.

uv says which versions there are (`uv pip freeze`), the interpreter's metadata what they need and
which of them a module belongs to.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from arkdev.errors import ConfigurationError
from arkdev.faas_emulator.requirement_files.requirement_sources import shown
from arkdev.faas_emulator.requirement_files.uv_program import ask_uv

_PROBE = """
import importlib.util, inspect, json, sys
from importlib.metadata import distributions

wanted = json.load(sys.stdin)
tops = {name.partition(".")[0] for name in wanted}
packages, holders = {}, {}
for found in distributions():
    name = found.metadata["Name"]
    if not name or name in packages:
        continue
    direct = json.loads(found.read_text("direct_url.json") or "{}")
    packages[name] = {
        "version": found.version,
        "requires": found.requires or [],
        "requires_python": found.metadata["Requires-Python"] or "",
        "url": direct.get("url", ""),
        "is_editable": bool(direct.get("dir_info", {}).get("editable")),
    }
    for file in found.files or ():
        *folders, last = file.parts
        module = inspect.getmodulename(last)
        if module and (folders or [module])[0] in tops:
            parts = folders if module == "__init__" else [*folders, module]
            holders.setdefault(".".join(parts), set()).add(name)

def owners(wanted):
    parts = wanted.split(".")
    for end in range(len(parts), 0, -1):
        prefix = ".".join(parts[:end])
        if found := holders.get(prefix):
            return found
        below = [names for held, names in holders.items() if held.startswith(prefix + ".")]
        if below:  # a folder that packages share: what it lacks nobody has
            return set().union(*below) if end == len(parts) else set()
    return set()

def origin(top):
    spec = importlib.util.find_spec(top)
    return spec.origin if spec else None

modules = {name: sorted(owners(name)) for name in wanted}
origins = {top: origin(top) for top in {n.partition(".")[0] for n, o in modules.items() if not o}}
json.dump({"python": "%d.%d" % sys.version_info[:2], "packages": packages, "modules": modules,
    "origins": origins, "stdlib": sorted(tops & sys.stdlib_module_names)}, sys.stdout)
"""


@dataclass(frozen=True)
class Package:
    """One installed distribution."""

    name: str
    """As uv writes it."""
    version: str
    requires: tuple[str, ...]
    requires_python: str
    line: str
    """How `uv pip freeze` names it: ``name==1.2``, ``name @ URL`` or ``-e URL``."""


@dataclass(frozen=True)
class Environment:
    """An interpreter with its packages, and whose the modules are that were asked for."""

    interpreter: Path
    python: str
    """``3.11``"""
    packages: Mapping[str, Package]
    """By normalised name."""
    modules: Mapping[str, tuple[str, ...]]
    """Module that was asked for → normalised names of the distributions that own it."""
    origins: Mapping[str, str | None]
    """Top-level module that no distribution owns → where it lies; None: it is not there."""
    stdlib: frozenset[str]
    """Of the modules that were asked for, those that this interpreter's library has."""


def default_interpreter(root: Path, *, running: str) -> Path:
    """Return the interpreter of the workspace's ``.venv`` if it has one, else the `running` one."""
    own = root / ".venv" / "bin" / "python"
    return own if own.exists() else Path(running)


def read_environment(interpreter: Path, *, modules: Iterable[str]) -> Environment:
    """Ask `interpreter` and uv for its packages and for the owners of `modules`.

    No package index is read. Raises `ConfigurationError` when the interpreter does not run,
    `RequirementsError` when uv refuses, `MissingExtraError` without uv.
    """
    frozen = ask_uv("pip", "freeze", "--python", str(interpreter)).splitlines()
    probe = _probe(interpreter, sorted(set(modules)))
    lines = {_name_of(line): line for line in frozen if " " not in line or " @ " in line}
    packages = {}
    for name, facts in probe["packages"].items():
        key = str(canonicalize_name(name))
        line = f"-e {facts['url']}" if facts["is_editable"] else lines.get(key, "")
        packages[key] = Package(
            name=_spelling(line) or name,
            version=facts["version"],
            requires=tuple(facts["requires"]),
            requires_python=facts["requires_python"],
            line=line or f"{name}=={facts['version']}",
        )
    return Environment(
        interpreter=interpreter,
        python=probe["python"],
        packages=packages,
        modules={
            module: tuple(str(canonicalize_name(name)) for name in names)
            for module, names in probe["modules"].items()
        },
        origins=probe["origins"],
        stdlib=frozenset(probe["stdlib"]),
    )


def _probe(interpreter: Path, modules: list[str]) -> Any:
    """What the interpreter says; -I: neither the workspace nor PYTHONPATH are on its path."""
    try:
        done = subprocess.run(
            [interpreter, "-I", "-c", _PROBE],
            input=json.dumps(modules),
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )
    except OSError as error:
        raise ConfigurationError(
            f"{interpreter} does not run: {error.strerror}", hint="name a Python with --python"
        ) from error
    if done.returncode:
        raise ConfigurationError(
            f"{interpreter} cannot tell its packages: {_last_lines(done.stderr)}",
            hint="name a Python of at least 3.10 with --python",
        )
    return json.loads(done.stdout)


def _last_lines(text: str) -> str:
    return "\n".join(map(shown, text.strip().splitlines()[-8:])) or "it says nothing"


def _name_of(line: str) -> str:
    return str(canonicalize_name(_spelling(line)))


def _spelling(line: str) -> str:
    if line.startswith("-e "):
        return ""
    return line.partition(" @ ")[0].partition("==")[0].strip()
