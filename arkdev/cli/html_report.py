"""The report of a debug run as one HTML file: no script, nothing from the network, all escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

from arkdev.cli import forecast_report
from arkdev.cli.debug_report import metric_value, name_of, what_is_learned
from arkdev.cli.terminal import duration, number
from arkdev.harness.forecast.forecast import Forecast
from arkdev.harness.steps import StepRecord
from arkdev.runs.reader import RunReader
from arkdev.runs.records import TEST, TRAIN, GroupRecord, TrajectoryRecord
from arkdev.runs.writer import write_page

NAME = "report.html"
MAX_TRAJECTORIES = 24
"""Shown whole; the folder has all of them."""
MAX_CHARACTERS = 20_000
"""Of one message."""
_DASH = "–"
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem;border-bottom:1px solid #ddd}
table{border-collapse:collapse}td,th{padding:.15rem .7rem;text-align:right}th{color:#777}
td:first-child,th:first-child{text-align:left}.bad{color:#b00020}.good{color:#1b7f3b}
.quiet{color:#777}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.2rem 0 .6rem;
background:#f6f6f6;padding:.5rem;border-radius:4px}summary{cursor:pointer}
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}pre{background:#222}
h2{border-color:#333}}
"""


def write_html_report(reader: RunReader, forecast: Forecast) -> Path:
    """Write ``report.html`` into the folder of a debug run, from its records; return its path."""
    return write_page(reader.folder / NAME, html_report(reader, forecast))


def steps_of(reader: RunReader) -> list[StepRecord]:
    """Return the steps of a run in order; of a step that was gone on with the last record."""
    found = {
        (event["step"], event["phase"]): StepRecord.from_json(event)
        for event in reader.events()
        if event.get("kind") == "step"
    }
    return sorted(found.values(), key=lambda step: (step.step, step.phase == TEST))


def html_report(reader: RunReader, forecast: Forecast) -> str:
    """Return the page."""
    summary = reader.manifest.summary or {}
    steps = steps_of(reader)
    parts = [
        *_head(reader, summary, steps),
        *_rewards(steps),
        *_steps(steps),
        *_metrics(steps),
        *_graders(summary),
        *_forecast(forecast),
        *_trajectories(reader),
    ]
    title = escape(f"debug run {reader.manifest.run_id}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _head(
    reader: RunReader, summary: Mapping[str, Any], steps: Sequence[StepRecord]
) -> Iterator[str]:
    manifest = reader.manifest
    yield f"<h1>{escape(manifest.run_id)}</h1>"
    settings = manifest.settings
    endpoint = settings.get("endpoint") or {}
    rows = [
        ("job", summary.get("job_id")),
        ("status", reader.status),
        ("method", settings.get("customization_type")),
        ("rollout", settings.get("rollout")),
        ("model", f"{endpoint.get('name')} {endpoint.get('model') or ''}"),
        ("begun", manifest.started_at),
        ("ended", manifest.finished_at),
    ]
    yield _table(("", ""), [(name, value) for name, value in rows if value])
    failure = summary.get("failure")
    if failure:
        yield f'<p class="bad">The job would fail: {escape(str(failure))}</p>'
    else:
        yield '<p class="good">Nothing in it would fail the job.</p>'
        learned, is_any = what_is_learned(steps)
        if learned:
            yield f'<p class="{"good" if is_any else "bad"}">It learns {escape(learned)}.</p>'
    for warning in summary.get("warnings") or ():
        yield f'<p class="bad">{escape(str(warning))}</p>'


def _rewards(steps: Sequence[StepRecord]) -> Iterator[str]:
    """Draw the mean reward by step, when there are two."""
    points = [(s.step, s.reward_mean) for s in steps if s.phase == TRAIN]
    known = [(step, mean) for step, mean in points if mean is not None]
    if len(known) < 2:
        return
    lowest, highest = min(m for _, m in known), max(m for _, m in known)
    span = highest - lowest or 1.0
    first, last = known[0][0], known[-1][0]
    line = " ".join(
        f"{40 + 640 * (step - first) / (last - first):.1f},{130 - 110 * (mean - lowest) / span:.1f}"
        for step, mean in known
    )
    yield "<h2>train/reward-&gt;final_reward.mean</h2>"
    yield (
        '<svg viewBox="0 0 700 150" width="700" role="img" aria-label="mean reward by step">'
        f'<text x="0" y="24" font-size="12" fill="#777">{number(highest)}</text>'
        f'<text x="0" y="134" font-size="12" fill="#777">{number(lowest)}</text>'
        f'<polyline points="{line}" fill="none" stroke="#2962ff" stroke-width="2"/></svg>'
    )


def _steps(steps: Sequence[StepRecord]) -> Iterator[str]:
    yield "<h2>Steps</h2>"
    headers = ("step", "groups", "dropped", "no signal", "reward", "time", "")
    yield _table(
        headers,
        [
            (
                f"{step.step} validation" if step.phase == TEST else step.step,
                step.num_groups,
                step.num_groups - step.num_kept,
                "" if step.num_without_signal is None else step.num_without_signal,
                number(step.reward_mean),
                duration(step.duration_s),
                step.failure or step.message,
            )
            for step in steps
        ],
    )


def _metrics(steps: Sequence[StepRecord]) -> Iterator[str]:
    for step in {step.phase: step for step in steps}.values():
        yield f"<h2>Metrics of {name_of(step)}</h2>"
        rows = [
            (name, metric_value(value), "estimated" if name in step.estimated else "")
            for name, value in step.metrics.items()
        ]
        yield _table(("metric", "value", ""), rows)


def _graders(summary: Mapping[str, Any]) -> Iterator[str]:
    rows = []
    for grader in summary.get("graders") or ():
        reward = grader.get("reward") or {}
        rows.append(
            (
                grader.get("name"),
                grader.get("weight"),
                number(reward.get("mean")),
                reward.get("num_graded", 0),
                reward.get("num_ungraded", 0),
                grader.get("place"),
            )
        )
    if rows:
        yield "<h2>Graders</h2>"
        yield _table(("grader", "weight", "mean", "graded", "ungraded", "place"), rows)


def _forecast(forecast: Forecast) -> Iterator[str]:
    yield "<h2>Signal forecast</h2>"
    for text in (forecast_report.headline(forecast), forecast_report.MEANING):
        yield f'<p class="quiet">{escape(text)}</p>'
    yield _table(forecast_report.HEADERS, forecast_report.main_rows(forecast, dash=_DASH))
    for text in forecast_report.remarks(forecast):
        yield f'<p class="quiet">{escape(text)}</p>'
    signal, solving, settled = forecast.signal, forecast.solving, forecast.settled
    if signal is not None:
        yield _table(forecast_report.SIZE_HEADERS, forecast_report.size_rows(signal, dash=_DASH))
    if solving is not None:
        yield _table(forecast_report.HEADERS, forecast_report.pass_rows(solving, dash=_DASH))
        if solving.difficulty:
            headers = forecast_report.difficulty_headers(solving)
            yield _table(headers, forecast_report.difficulty_rows(solving, dash=_DASH))
        for text in forecast_report.solving_notes(solving):
            yield f'<p class="quiet">{escape(text)}</p>'
    if settled is not None:
        for line, prompts in forecast_report.settled_lines(settled):
            items = "".join(f"<li>{escape(prompt)}</li>" for prompt in prompts)
            yield f"<p>{escape(line)}</p><ul>{items}</ul>"
        if warning := forecast_report.too_few_warning(settled):
            yield f"<p>{escape(warning)}</p>"


def _trajectories(reader: RunReader) -> Iterator[str]:
    shown = list(islice(reader.trajectories(), MAX_TRAJECTORIES))
    wanted = {trajectory.trajectory_id for trajectory in shown}
    groups = {
        name: (group, index)
        for group in reader.groups()
        for index, name in enumerate(group.trajectory_ids)
        if name in wanted
    }
    yield f"<h2>The first {len(shown)} trajectories</h2>"
    yield '<p class="quiet">arkdev show RUN ID shows any of them with its logs.</p>'
    for trajectory in shown:
        yield from _trajectory(trajectory, groups.get(trajectory.trajectory_id))


def _trajectory(
    trajectory: TrajectoryRecord, graded: tuple[GroupRecord, int] | None
) -> Iterator[str]:
    reward = graded[0].rewards[graded[1]] if graded else None
    name = escape(trajectory.trajectory_id)
    yield f"<details><summary>{name} {trajectory.verdict}, reward {number(reward)}</summary>"
    for attempt in trajectory.attempts:
        if attempt.error:
            yield f'<p class="bad">{escape(attempt.error)} {escape(attempt.where or "")}</p>'
    for message in trajectory.messages:
        yield f"<b>{escape(str(message.get('role')))}</b>"
        yield f"<pre>{escape(_text(message)[:MAX_CHARACTERS])}</pre>"
    yield "</details>"


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    parts = [content if isinstance(content, str) else _json(content)] if content else []
    if message.get("tool_calls"):
        parts.append(_json(message["tool_calls"]))
    return "\n".join(parts)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def _table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(header)}</th>" for header in headers)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"
