"""Going on with a run that was cut short: which one, with which flags, and whether it may.

A resumed run must give what it would have given uninterrupted, so plugin code, data, the job file
and every setting must be what they were. Only how much goes on at once, and how fast, may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arkdev.endpoints.registry import LOCAL
from arkdev.errors import RunError
from arkdev.runs.reader import RunReader, find_run
from arkdev.runs.records import Manifest
from arkdev.runs.resume import check_resumable, finished_groups

_MAY_CHANGE = ("concurrency", "limits", "flags", "training")
"""`training` follows from the job file, which is compared itself, and from other settings."""
_KINDS = {"test": "a test of plugins", "debug": "a debug run", "train": "a training"}
_MISSING = object()


def find_resumable(runs: Path, name: str, *, kind: str) -> RunReader:
    """Find the run called `name` (see `find_run`); ``latest`` is the newest of its kind.

    Raises `RunError` when there is none, or when it is finished, alive, of another kind or schema.
    """
    reader = RunReader(find_run(runs, name, is_wanted=lambda run: run.kind == kind))
    if reader.manifest.kind != kind:
        raise RunError(
            f"run {reader.manifest.run_id} is not {_KINDS[kind]}",
            hint="`arkdev runs` lists all runs with their kinds",
        )
    check_resumable(reader)
    return reader


def check_unchanged(
    manifest: Manifest, *, settings: Mapping[str, Any], hashes: Mapping[str, str]
) -> None:
    """Raise `RunError`, naming each thing that is no longer what it was when the run began."""
    problems = [
        *changed_files(manifest.hashes, hashes),
        *_changed_settings(manifest.settings, settings),
    ]
    if not problems:
        return
    raise RunError(
        f"run {manifest.run_id} cannot be resumed: {'; '.join(problems)}",
        hint="put it back as it was, or start a new run without --resume",
        problems=tuple(problems),
    )


def flags_of(manifest: Manifest) -> Mapping[str, Any]:
    """Return the flags to go on with.

    A policy in this process that was chosen by default (`flows.local_policy`) stays: another run
    may be the newest by now.
    """
    flags = manifest.settings.get("flags") or {}
    endpoint = manifest.settings.get("endpoint") or {}
    if flags.get("endpoint") == LOCAL.name and endpoint.get("model"):
        return {"model": endpoint["model"], **flags}
    return flags


def notes_on(reader: RunReader, *, num_samples: int, concurrency: int) -> tuple[str, ...]:
    """Say how far the run is, and what is different now."""
    num_finished = len(finished_groups(reader.folder).groups)
    notes = [
        f"going on with run {reader.manifest.run_id}: "
        f"{num_finished} of {num_samples} samples are finished and kept"
    ]
    before = reader.manifest.settings.get("concurrency")
    if before != concurrency:
        notes.append(f"{concurrency} rollouts at once now, {before} when the run began")
    return tuple(notes)


def changed_files(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Say of each file that is not what it was what became of it."""
    problems = []
    for name in sorted(before.keys() | now.keys()):
        if name not in now:
            problems.append(f"{name} is gone")
        elif name not in before:
            problems.append(f"{name} is new")
        elif before[name] != now[name]:
            problems.append(f"{name} changed")
    return problems


def _changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    problems = []
    for name in dict.fromkeys((*before, *now)):
        was, is_now = before.get(name), now.get(name)
        if name in _MAY_CHANGE or before.get(name, _MISSING) == now.get(name, _MISSING):
            continue
        if isinstance(was, Mapping) and isinstance(is_now, Mapping):  # what differs in it alone
            kept = [key for key in was if was[key] == is_now.get(key, _MISSING)]
            was, is_now = ({k: v for k, v in of.items() if k not in kept} for of in (was, is_now))
        problems.append(f"{name} was {was}, is {is_now}")
    return problems
