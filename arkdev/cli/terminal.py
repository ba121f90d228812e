"""What a terminal can show: consoles, symbols that its encoding carries, numbers, bars."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from arkdev.cli.streams import drop_output
from arkdev.job.paths import readable

NARROW_BELOW = 60
_MAX_LABEL = 24
_MIN_NAME = 14
_EIGHTHS = " ▏▎▍▌▋▊▉"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class PipeConsole(Console):
    """A console that outlives the reader of its pipe."""

    def on_broken_pipe(self) -> None:
        """Drop this and all later output; the command goes on to its own exit code."""
        self.quiet = True
        drop_output(self.file.fileno())


def printable(text: str) -> str:
    r"""Show control characters as ``\x1b``, so that a model's text cannot steer the terminal."""
    text = readable(text).replace("\r\n", "\n")
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


@dataclass(frozen=True)
class Symbols:
    """The symbols of a report, each in the best form that the encoding carries."""

    plus_minus: str
    times: str
    dot: str
    rule: str
    arrow: str
    at_least: str
    nearly_zero: str
    dash: str
    ellipsis: str
    has_blocks: bool
    is_narrow: bool = False
    """Fewer than `NARROW_BELOW` columns: only the numbers that matter most."""

    def bar(self, share: float, *, width: int) -> str:
        """Return a bar of `share` (0..1) of `width` cells; something above 0 is never invisible."""
        if not self.has_blocks:
            return "#" * (max(1, round(share * width)) if share > 0 else 0)
        eighths = max(1, round(share * width * 8)) if share > 0 else 0
        return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def symbols(console: Console) -> Symbols:
    """Choose the symbols for `console` by what its encoding can carry."""

    def best(symbol: str, plain: str) -> str:
        return symbol if _carries(console.encoding, symbol) else plain

    return Symbols(
        plus_minus=best("±", "+/-"),
        times=best("×", "x"),
        dot=best("·", "|"),
        rule=best("─", "-"),
        arrow=best("→", "->"),
        at_least=best("≥", ">="),
        nearly_zero=best("≈0", "~0"),
        dash=best("–", "-"),
        ellipsis=best("…", "..."),
        has_blocks=_carries(console.encoding, "█" + _EIGHTHS),
        is_narrow=console.width < NARROW_BELOW,
    )


def _carries(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def number(value: float | None, *, unknown: str = "-") -> str:
    """Format a reward or metric in few characters: 0.621, 12.35, 1234.5, 1.2e+07.

    >>> [number(v) for v in (0, 0.62149, 12.3456, 1234.56, 0.000123, 12345678.0)]
    ['0.000', '0.621', '12.35', '1234.6', '0.000123', '1.23e+07']
    """
    if value is None:
        return unknown
    size = abs(value)
    if size and (size < 0.001 or size >= 1e6):
        return f"{value:.3g}"
    return f"{value:.3f}" if size < 10 else f"{value:.2f}" if size < 1000 else f"{value:.1f}"


def duration(seconds: float) -> str:
    """Format seconds: 0.4 ms, 312 ms, 1.23 s, 2m05s."""
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s"


def share(part: int, whole: int) -> str:
    """Format a share as a whole percentage that is 0% or 100% only when it is exactly that."""
    if whole == 0:
        return ""
    percent = round(100 * part / whole)
    if part:
        percent = max(percent, 1)
    if part < whole:
        percent = min(percent, 99)
    return f"{percent}%"


def plural(count: int, noun: str) -> str:
    """``1 group``, ``3 groups``, ``1,000 groups``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


@dataclass(frozen=True)
class Section:
    """A titled part of a report."""

    title: str
    body: RenderableType


def titled(section: Section, *, signs: Symbols) -> Group:
    """Put a section under its title line."""
    rule = Rule(Text(section.title, style="bold"), characters=signs.rule, style="dim", align="left")
    return Group(Text(), rule, section.body)


def facts(rows: Iterable[tuple[str, Text | str]]) -> Table:
    """Lay out label and value pairs; long labels are cut, values wrap inside their column."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, overflow="ellipsis", max_width=_MAX_LABEL)
    table.add_column(overflow="fold", ratio=1)
    for label, value in rows:
        table.add_row(f" {label}", value)
    return table


def number_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    without: Collection[str] = (),
) -> Table:
    """Lay out a first column of names and right-aligned numbers, but for the columns `without`."""
    rows = list(rows)
    table = Table(box=None, padding=(0, 0, 0, 1), header_style="dim", pad_edge=True)
    longest = max((cell_len(str(row[0])) for row in rows), default=0)
    table.add_column(headers[0], overflow="fold", min_width=min(longest, _MIN_NAME))
    kept = [0, *(i for i, header in enumerate(headers) if i and header not in without)]
    for index in kept[1:]:
        table.add_column(headers[index], justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[index] for index in kept))
    return table
