"""``arkdev show RUN --logs``, and what the plugins of one trajectory logged."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from arkdev.cli.output import console, print_json
from arkdev.errors import UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from arkdev.runs.reader import RunReader
    from arkdev.runs.records import PluginLogRecord, TrajectoryRecord

_RANKS = {
    "DEBUG": 10,
    "INFO": 20,
    "PRINT": 20,
    "OUTPUT": 20,
    "WARNING": 30,
    "ERROR": 40,
    "CRITICAL": 50,
}
_NUMBERED = "Level "
"""How logging names the levels that have no name: by their number."""
_LEVEL_COLUMNS = 8
_STYLES = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}


def rank_of(level: str) -> int:
    """Return how bad a level is; lines of levels that plugins named count as INFO.

    Raises `UsageError` for a name that is none of logging's.
    """
    rank = _RANKS.get(level.upper())
    if rank is None:
        names = [name for name in _RANKS if name not in ("PRINT", "OUTPUT")]
        raise UsageError(f"--level {level}: there is {', '.join(names)}")
    return rank


def _rank_of_line(level: str) -> int:
    number = level.removeprefix(_NUMBERED)
    return _RANKS.get(level, int(number) if number.isdecimal() else _RANKS["INFO"])


def logs_of(reader: RunReader, trajectory: TrajectoryRecord) -> list[PluginLogRecord]:
    """Return what was logged for a trajectory: by its rollout's attempts and by its graders.

    A group rollout logs for all trajectories of its call under the first one's id.
    """
    found = list(reader.logs(trajectory.trajectory_id))
    first = f"{trajectory.sample_index}.0"
    if trajectory.call_size > 1 and trajectory.trajectory_id != first:
        found += [line for line in reader.logs(first) if line.grader is None]
    return sorted(found, key=lambda line: line.at)


def show_logs(reader: RunReader, *, level: str, as_json: bool) -> None:
    """Print all lines of a run from `level` up."""
    least = rank_of(level)
    lines = [line for line in reader.logs() if _rank_of_line(line.level) >= least]
    lines.sort(key=lambda line: line.at)  # threads write when they come to it
    if as_json:
        print_json({"logs": [dataclasses.asdict(line) for line in lines]})
        return
    out = console()
    is_empty = True
    for text in shown_lines(lines, with_place=True):
        is_empty = False
        out.print(text, soft_wrap=True)
    if is_empty:
        out.print("nothing was logged or printed" + (f" from {level.upper()} up" if level else ""))


def print_logs(out: Any, lines: Iterable[PluginLogRecord]) -> None:
    """Print a trajectory's lines under a title; nothing where there are none."""
    from rich.console import Group

    from arkdev.cli.terminal import Section, symbols, titled

    texts = list(shown_lines(lines, with_place=False))
    if texts:
        out.print(titled(Section("Log", Group(*texts)), signs=symbols(out)))


def shown_lines(lines: Iterable[PluginLogRecord], *, with_place: bool) -> Iterator[Text]:
    """Yield lines as ``10:15:31.204 WARNING  attempt 2  plugins.weather: asked``."""
    from rich.text import Text

    from arkdev.cli.terminal import printable

    for line in lines:
        text = Text(f"{line.at[11:23]} ", style="dim", overflow="fold")
        level = printable(line.level.removeprefix(_NUMBERED))[:_LEVEL_COLUMNS]
        text.append(f"{level:<{_LEVEL_COLUMNS}}", style=_STYLES.get(line.level, "cyan"))
        place = [*(line.trajectory_ids if with_place else ()), line.grader or ""]
        if line.attempt:
            place.append(f"attempt {line.attempt + 1}")
        for part in filter(None, place):
            text.append(f" {printable(part)}", style="bold")
        logger = f"{line.logger}: " if line.logger else ""
        text.append(f" {printable(logger + line.text)}", style=_STYLES.get(line.level, "default"))
        yield text
