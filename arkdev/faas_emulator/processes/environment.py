"""The environment of instances that are child processes: made by uv, once for each content.

It lies in the user's cache: in ``arkdev/functions`` of ``$XDG_CACHE_HOME``, else of ``~/.cache``
(macOS: ``~/Library/Caches``), in a folder named by a hash of the requirements, arkdev's function
wheel and the Python. It is made beside that folder and renamed, so what is there is whole, and of
two arkdevs that make the same one the second takes what the first has made.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import platform
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from arkdev.errors import BuildError
from arkdev.faas_emulator.packages.function_wheel import function_wheel
from arkdev.faas_emulator.requirement_files.install_errors import install_failure, last_lines
from arkdev.faas_emulator.requirement_files.requirements import Requirements
from arkdev.faas_emulator.requirement_files.uv_program import run_uv

NUM_KEPT_ENVIRONMENTS = 8
"""Environments that are kept, the ones used last."""
_IN_USE_S = 7 * 24 * 3600
"""One that was taken within this time, in seconds, may still run: it is kept as well."""
_ABANDONED_S = 24 * 3600
"""A half-made one of this age, in seconds, is of an arkdev that was killed."""
_TAKEN_FILE = ".taken"
"""Its time of change tells when the environment was taken last."""
_HALF_MADE = ".making"


@dataclass(frozen=True)
class Environment:
    """An environment that is there."""

    python: Path
    """Its interpreter."""
    was_cached: bool


def environments_folder(environ: Mapping[str, str], *, system: str, home: Path) -> Path:
    """Return where environments are kept; `system` is `sys.platform`."""
    if (given := environ.get("XDG_CACHE_HOME", "")) and Path(given).is_absolute():
        cache = Path(given)
    elif system == "darwin":
        cache = home / "Library" / "Caches"
    else:
        cache = home / ".cache"
    return cache / "arkdev" / "functions"


async def function_environment(
    requirements: Requirements, *, on_output: Callable[[str], None]
) -> Environment:
    """Make the environment of some requirements and arkdev's function side, or find it.

    `on_output` is told of each line. Raises `MissingExtraError` without uv, and `BuildError` with
    the cause when it cannot be made. When cancelled, what was made so far is removed.
    """
    root = environments_folder(os.environ, system=sys.platform, home=Path.home())
    wheel = await asyncio.to_thread(_wheel)
    home = root / _key(requirements, wheel)
    if _is_whole(home):
        _take(home)
        on_output(f"environment {home.name} is there already")
        return Environment(_python(home), was_cached=True)
    started = time.monotonic()
    on_output(f"environment for Python {platform.python_version()} of this machine")
    try:
        root.mkdir(parents=True, exist_ok=True)
        await _make(home, requirements, wheel=wheel, on_output=on_output)
        await asyncio.to_thread(_prune, root, but_not=home)
    except OSError as error:
        raise BuildError(
            f"the environment cannot be written: {error.strerror}",
            where=str(error.filename or root),
            hint="XDG_CACHE_HOME names another folder for caches",
        ) from error
    on_output(f"environment {home.name} made in {time.monotonic() - started:.1f} s")
    return Environment(_python(home), was_cached=False)


class _Wheel(NamedTuple):
    name: str
    content: bytes


def _wheel() -> _Wheel:
    with TemporaryDirectory() as folder:
        path = function_wheel(Path(folder))
        return _Wheel(path.name, path.read_bytes())


def _key(requirements: Requirements, wheel: _Wheel) -> str:
    """The hash of what an environment is made of."""
    python = (sys.version, os.path.realpath(sys.executable), platform.machine())
    digest = hashlib.sha256("\0".join(python).encode("utf-8", "surrogateescape"))
    for name, text in sorted(requirements.install_files.items()):
        digest.update(f"\0{name}\0{text}".encode())
    digest.update(wheel.content)
    return digest.hexdigest()[:20]


def _python(home: Path) -> Path:
    return home / "bin" / "python"


def _is_whole(home: Path) -> bool:
    """Whether it is there, and the Python that it was made with too."""
    return _python(home).exists()


def _take(home: Path) -> None:
    with contextlib.suppress(OSError):  # a cache that may only be read
        (home / _TAKEN_FILE).touch()


async def _make(
    home: Path, requirements: Requirements, *, wheel: _Wheel, on_output: Callable[[str], None]
) -> None:
    half = home.with_name(f"{home.name}{_HALF_MADE}-{secrets.token_hex(4)}")
    try:
        venv = ("venv", "--quiet", "--relocatable", "--no-project", "--python", sys.executable)
        await _run((*venv, str(half)), requirements, on_output=on_output)
        files = half / "requirements"
        files.mkdir()
        for name, text in requirements.install_files.items():
            (files / name).write_text(text, encoding="utf-8")
        ours = files / wheel.name  # here, a killed arkdev leaves it in what is swept
        ours.write_bytes(wheel.content)
        for what in _installations(requirements, str(files / "requirements.txt"), str(ours)):
            install = ("pip", "install", "--compile-bytecode", "--python", str(_python(half)))
            await _run((*install, *what), requirements, on_output=on_output)
        _take(half)
        _put_in_place(half, home)
    finally:
        await asyncio.to_thread(shutil.rmtree, half, ignore_errors=True)


def _installations(requirements: Requirements, file: str, wheel: str) -> Iterator[tuple[str, ...]]:
    """One for all, so that what does not go together is found; see `uses_hashes`."""
    if requirements.uses_hashes:
        yield ("-r", file)
        yield (wheel,)
    else:
        yield ("-r", file, wheel)


def _put_in_place(half: Path, home: Path) -> None:
    """Rename; one that is there and whole was made by another arkdev meanwhile, and stays."""
    if home.is_dir() and not _is_whole(home):
        home.rename(half.with_name(f"{half.name}-replaced"))
    try:
        half.rename(home)
    except OSError:
        if not _is_whole(home):
            raise


async def _run(
    arguments: tuple[str, ...], requirements: Requirements, *, on_output: Callable[[str], None]
) -> None:
    lines: list[str] = []

    def take(line: str) -> None:
        lines.append(line)
        on_output(f"    {line}")

    code = await run_uv(arguments, on_line=take)
    if code:
        failure = install_failure(lines, requirements)
        raise BuildError(
            f"requirements cannot be installed: {failure.cause}"
            + last_lines(lines, but_not=failure.cause),
            where=failure.where,
            hint=failure.advice,
        )


def _prune(root: Path, *, but_not: Path) -> None:
    """Remove what is old; what another arkdev removes at the same time is no fault."""
    now = time.time()
    taken = []
    for home in root.iterdir():
        if home == but_not or not home.is_dir():
            continue
        if _HALF_MADE in home.name:
            if now - _changed(home) > _ABANDONED_S or home.name.endswith("-replaced"):
                shutil.rmtree(home, ignore_errors=True)
        else:
            taken.append((_changed(home / _TAKEN_FILE), home))
    taken.sort(reverse=True)
    for when, home in taken[NUM_KEPT_ENVIRONMENTS - 1 :]:
        if now - when > _IN_USE_S:
            shutil.rmtree(home, ignore_errors=True)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
