"""``arkdev show RUN TRAJECTORY --trace``: the spans of a trajectory as a waterfall."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from arkdev.cli.output import console, print_json
from arkdev.errors import RunError

if TYPE_CHECKING:
    from rich.text import Text

    from arkdev.cli.terminal import Symbols
    from arkdev.runs.reader import RunReader
    from arkdev.runs.records import SpanRecord

_DURATION = 8
_MAX_NAME = 40
_MAX_INDENT = 8
"""Levels that are shown by where a name begins."""


def show_trace(reader: RunReader, trajectory_id: str, *, as_json: bool) -> None:
    """Print what happened when, one block for each attempt of the rollout and each grading.

    Raises `RunError` when there is no such trajectory, or when nothing of it was recorded.
    """
    reader.trajectory(trajectory_id)
    spans = sorted(reader.spans(trajectory_id), key=lambda span: span.started_at)
    if not spans:
        raise RunError(
            f"run {reader.manifest.run_id} has no spans of {trajectory_id}",
            hint="`arkdev test plugin --trace` records them",
        )
    if as_json:
        print_json(
            {"trajectory": trajectory_id, "spans": [dataclasses.asdict(span) for span in spans]}
        )
        return
    from rich.text import Text

    from arkdev.cli.terminal import symbols

    out = console()
    signs = symbols(out)
    for number, (root, inside) in enumerate(_blocks(spans)):
        if number:
            out.print()
        out.print(Text.assemble((_title(root), "bold"), _error(root)), soft_wrap=True)
        for line in _waterfall(root, inside, signs=signs, width=out.width):
            out.print(line, no_wrap=True, overflow="crop")


def _blocks(spans: Sequence[SpanRecord]) -> Iterator[tuple[SpanRecord, list[SpanRecord]]]:
    """Yield each attempt with the spans inside it, in the order of their beginnings.

    A grader's span belongs to the trace of its rollout and is a block of its own, since it may
    begin long after the rollout has ended. A span whose parent is missing (its process was killed)
    is a block, too.
    """
    known = {span.span_id: span for span in spans}
    children: dict[str, list[SpanRecord]] = defaultdict(list)
    roots: list[SpanRecord] = []
    for span in spans:
        is_root = span.parent_span_id not in known or "arkdev.grader" in span.attributes
        (roots if is_root else children[span.parent_span_id or ""]).append(span)
    for root in roots:
        yield root, list(_below(root, children))


def _below(span: SpanRecord, children: dict[str, list[SpanRecord]]) -> Iterator[SpanRecord]:
    left = children[span.span_id][::-1]
    while left:  # a function that calls itself may be deeper than Python calls
        child = left.pop()
        yield child
        left += children[child.span_id][::-1]


def _title(root: SpanRecord) -> str:
    from arkdev.cli.terminal import printable

    kind = root.attributes.get("arkdev.span_type")
    number = f" {root.attempt + 1}" if root.attempt or kind == "rollout" else ""
    what = {"rollout": "attempt", "grader": "grading"}.get(str(kind), "span")
    verdict = root.attributes.get("arkdev.verdict")
    return printable(f"{what}{number}: {root.name}" + (f"  {verdict}" if verdict else ""))


def _error(span: SpanRecord) -> Any:
    from arkdev.cli.terminal import printable

    return (f"  {printable(span.error).splitlines()[0]}", "red") if span.error else ""


def _waterfall(
    root: SpanRecord, inside: Sequence[SpanRecord], *, signs: Symbols, width: int
) -> Iterator[Text]:
    """Yield a line for each span: its name, its place in time, and how long it took."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    from arkdev.cli.terminal import duration, printable

    depths = {root.span_id: 0}
    for span in inside:
        depths[span.span_id] = depths[span.parent_span_id or ""] + 1
    rows = [
        (_indented(printable(span.name).replace("\n", " "), depths[span.span_id]), span)
        for span in (root, *inside)
    ]
    begun, ended = _start_s(root), max(_start_s(span) + span.duration_s for _, span in rows)
    whole_s = max(ended - begun, 1e-9)
    name_width = min(_MAX_NAME, width // 2, max(cell_len(name) for name, _ in rows))
    bar_width = max(1, width - name_width - _DURATION - 4)
    for name, span in rows:
        if cell_len(name) > name_width:
            name = set_cell_size(name, name_width - len(signs.ellipsis)) + signs.ellipsis
        left = min(bar_width - 1, int(bar_width * max(0.0, _start_s(span) - begun) / whole_s))
        share = min(1.0, span.duration_s / whole_s)
        bar = signs.bar(share, width=bar_width)[: bar_width - left]
        line = Text(set_cell_size(name, name_width), style="bold" if span is root else "")
        line.append(f"  {' ' * left}")
        line.append(bar, style="red" if span.error else "cyan")
        line.append(" " * (bar_width - left - len(bar)))
        line.append(f"  {duration(span.duration_s):>{_DURATION}}", style="dim")
        yield line


def _indented(name: str, depth: int) -> str:
    """Show how deep a span is, below some depth by its number."""
    return (
        f"{'  ' * depth}{name}" if depth <= _MAX_INDENT else f"{'  ' * _MAX_INDENT}{depth} {name}"
    )


def _start_s(span: SpanRecord) -> float:
    return datetime.fromisoformat(span.started_at).timestamp()
