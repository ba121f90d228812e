"""What a person sees of a training: a row for each step, the curve of rewards, what it came to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Group
from rich.text import Text

from arkdev.cli.debug_report import in_steps, what_is_learned
from arkdev.cli.terminal import Section, Symbols, duration, facts, number, plural, printable
from arkdev.harness.steps import StepRecord
from arkdev.runs.reader import RunReader
from arkdev.runs.records import TEST, TRAIN
from arkdev.runs.snapshots import CHECKPOINTS, Snapshots

HEADERS = (
    "step",
    "reward",
    "kl",
    "clip",
    "entropy",
    "tokens",
    "tok/s",
    "rollout",
    "grade",
    "update",
    "left",
)
_WIDTHS = (9, 7, 9, 6, 8, 7, 7, 8, 8, 8, 7)
_WITHOUT = ("clip", "tok/s", "grade")
_ALL_FROM = sum(_WIDTHS) + len(_WIDTHS)
"""Columns of a terminal that has room for all."""

_UPDATED = "time/update_s"
"""A step has this metric when its batch was learned from."""

_TELLING = (
    "advantages.mean",
    "advantages.min",
    "advantages.max",
    "completion_tokens.mean",
    "truncated_ratio",
    "kl",
    "rollout_off_policy_kl",
    "entropy",
    "pg_clipfrac",
    "ratio_max",
    "grad_norm",
    "lr",
    "sync_gap_mean",
)
"""Of the update; and whatever rollouts and graders come to."""
_ROUNDING = 1e-6
_HEIGHT = 8
_MAX_COLUMNS = 60
_MAX_STEPS = 40
_MARK = {True: "•", False: "*"}
_VALIDATION = {True: "◆", False: "V"}


def kl_column(hyperparameters: Mapping[str, object]) -> tuple[str, str]:
    """Return the metric that the column ``kl`` shows, and what it is, in words."""
    if hyperparameters.get("kl_coefficient"):
        return "kl", "kl: from the model that training began with"
    return "rollout_off_policy_kl", "kl: between what samples and what is trained"


def cells(step: StepRecord, signs: Symbols, *, kl: str, left_s: float | None) -> tuple[str, ...]:
    """Return the row of a step; of a round of validation its name has ``test``.

    `kl` names the metric of that column, `left_s` is what the steps to come will take.
    """
    metrics, dash = step.metrics, signs.dash

    def seconds(name: str) -> str:
        value = metrics.get(name)
        return dash if value is None else duration(value)

    if step.phase == TEST:
        blank = ("",) * (len(HEADERS) - 3)
        reward = number(step.reward_mean, unknown=dash)
        return (f"{step.step} test", reward, *blank, duration(step.duration_s))
    clipped = metrics.get("train/pg_clipfrac")
    speed = metrics.get("rollout_tokens_per_s")
    return (
        str(step.step),
        number(step.reward_mean, unknown=dash),
        _distance(metrics.get(f"train/{kl}"), signs),
        dash if clipped is None else f"{100 * clipped:.1f}%",
        number(metrics.get("train/entropy"), unknown=dash),
        _whole(metrics.get("train/completion_tokens.mean"), dash),
        _whole(speed, dash),
        seconds("time/rollout_s"),
        seconds("time/grade_s"),
        seconds("time/update_s"),
        dash if left_s is None else _estimate(left_s),
    )


def _distance(value: float | None, signs: Symbols) -> str:
    """Return a KL; what rounding alone makes, of either sign, is no number to read."""
    if value is not None and 0 < abs(value) < _ROUNDING:
        return signs.nearly_zero
    return number(value, unknown=signs.dash)


def _estimate(seconds: float) -> str:
    """``0m35s``: an estimate has no fractions of a second."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s"


def telling(step: StepRecord) -> StepRecord:
    """Return a step with the metrics that a report shows; metrics.jsonl has them all."""
    kept = {
        name: value
        for name, value in step.metrics.items()
        if ("->" in name and "_share->" not in name) or name.partition("/")[2] in _TELLING
    }
    return replace(step, metrics=kept)


def _whole(value: float | None, dash: str) -> str:
    if value is None:
        return dash
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def aligned(row: Sequence[str], *, width: int) -> str:
    """Return a row as a line of the table that grows while the run goes on."""
    shown = [
        cell.ljust(room) if index == 0 else cell.rjust(room)
        for index, (cell, room, header) in enumerate(zip(row, _WIDTHS, HEADERS, strict=False))
        if width >= _ALL_FROM or header not in _WITHOUT
    ]
    return " ".join(shown).rstrip()


def curve_section(steps: Sequence[StepRecord], signs: Symbols) -> Section | None:
    """Draw the mean reward by step, and that of the rounds of validation; None below two steps."""
    training = {s.step: s.reward_mean for s in steps if s.phase == TRAIN}
    rounds = {s.step: s.reward_mean for s in steps if s.phase == TEST}
    rewards = {step: reward for step, reward in training.items() if reward is not None}
    tested = {step: reward for step, reward in rounds.items() if reward is not None}
    if len(rewards) < 2:
        return None
    lowest, highest = (of([*rewards.values(), *tested.values()]) for of in (min, max))
    if lowest == highest:
        return Section("Reward by step", Text(f" {number(lowest)} in every step"))
    first, last = min(rewards), max(rewards)
    width = min(_MAX_COLUMNS, last - first + 1)
    rows = [[" "] * width for _ in range(_HEIGHT)]
    marks = (
        (_averaged(rewards, first, last, width), _MARK[signs.has_blocks]),
        (_averaged(tested, first, last, width), _VALIDATION[signs.has_blocks]),
    )
    for points, mark in marks:
        for column, reward in points.items():
            height = round((reward - lowest) / (highest - lowest) * (_HEIGHT - 1))
            rows[_HEIGHT - 1 - height][column] = mark
    labels = [number(highest), *[""] * (_HEIGHT - 2), number(lowest)]
    room = max(map(len, labels))
    bar = "│" if signs.has_blocks else "|"
    lines = [
        Text(f" {label.rjust(room)} {bar}{''.join(row).rstrip()}")
        for label, row in zip(labels, rows, strict=True)
    ]
    lines.append(Text(f" {' ' * room}  step {first} to {last}", style="dim"))
    if tested:
        told = f" {marks[0][1]} training   {marks[1][1]} validation"
        lines.append(Text(told, style="dim"))
    return Section("Reward by step", Group(*lines))


def _averaged(points: dict[int, float], first: int, last: int, width: int) -> dict[int, float]:
    """Put steps into columns; several in one are averaged."""
    columns: dict[int, list[float]] = {}
    for step, reward in points.items():
        column = (step - first) * (width - 1) // max(1, last - first)
        columns.setdefault(min(max(column, 0), width - 1), []).append(reward)
    return {column: sum(rewards) / len(rewards) for column, rewards in columns.items()}


def steps_section(
    steps: Sequence[StepRecord], signs: Symbols, *, kl: str, width: int
) -> Section | None:
    """Build the table of steps; of many the first and the last."""
    if not steps:
        return None
    shown, note = list(steps), ""
    if len(shown) > _MAX_STEPS:
        half = _MAX_STEPS // 2
        note = f" {len(shown) - 2 * half} rows are left out; metrics.jsonl has them"
        shown = [*shown[:half], *shown[-half:]]
    lines = [aligned(HEADERS[:-1], width=width)]
    lines += [aligned(cells(s, signs, kl=kl, left_s=None)[:-1], width=width) for s in shown]
    told = [Text(f" {line}", style="" if n else "dim") for n, line in enumerate(lines)]
    return Section("Steps", Group(*told, *([Text(note, style="dim")] if note else [])))


def outcome_section(
    steps: Sequence[StepRecord],
    *,
    job_id: str,
    failure: str | None,
    more: Iterable[tuple[str, Text | str]] = (),
    models: Mapping[str, Path],
    warnings: Sequence[str],
) -> Section:
    """Build what a training came to; the rows `more` go below why it ended."""
    rows: list[tuple[str, Text | str]] = [("job", job_id), ("reward", rewards_told(steps))]
    if failure is not None:
        rows.append(("failed", Text(printable(failure), style="bold red")))
    rows += more
    learned, is_any = learned_told(steps)
    if learned:
        rows.append(("learned", Text(learned, style="" if is_any else "bold red")))
    rows += [
        (f"{which} model", f"{folder.parent.name}/{folder.name} in the run's folder")
        for which, folder in models.items()
    ]
    rows += [("warning", Text(printable(text), style="yellow")) for text in warnings]
    return Section("Training", facts(rows))


def learned_told(steps: Sequence[StepRecord]) -> tuple[str, bool]:
    """Say how much the steps have taught, and whether it is anything; "": unknown.

    What has an advantage teaches nothing where no update was made (all answers were masked), and
    what has none teaches where KL or entropy moved the weights.
    """
    done = [step for step in steps if step.phase == TRAIN and not step.failure]
    updated = [step for step in done if _UPDATED in step.metrics]
    if not updated:
        told, is_any = what_is_learned(done)
        if told and is_any:
            told = f"nothing: no update was made {in_steps(len(done), 'any')}"
        return told, False
    taught = sum(step.num_kept - (step.num_without_signal or 0) for step in updated)
    num_groups = sum(step.num_groups for step in done)
    how = (
        f"from {taught:,} of {plural(num_groups, 'group')}" if taught else "by KL or entropy alone"
    )
    return f"in {len(updated)} of {plural(len(done), 'step')}, {how}", True


def next_for_models(run: str, *, best: str | None, last: str) -> list[str]:
    """Return what to type when a training is over: its best model answers, and is exported.

    `run` is an id or a path, `best` (None: not validated) and `last` are folders of models.
    """
    which = " --step best" if best not in (None, last) else ""
    model = run if Path(run).name == run else best or last  # a path would be one of a model
    return [
        f"arkdev test plugin --endpoint local --model {model}",
        f"arkdev export {run}{which} --to my-model",
    ]


def last_checkpoint(folder: Path) -> int | None:
    """Return the steps of the checkpoint that the run in `folder` would go on from."""
    saved = Snapshots(folder / CHECKPOINTS, run_id=RunReader(folder).manifest.run_id).all()
    return saved[0].step if saved else None


def next_after_failure(run: str, *, last_checkpoint: int | None) -> list[str]:
    """Return what to type when a training failed: a plugin that is mended rules `--resume` out.

    `last_checkpoint` counts steps; None: the run has none.
    """
    if last_checkpoint is None:
        return ["arkdev train   (begins anew; no step was saved)"]
    kept = f"goes on after {plural(last_checkpoint, 'step')} while no file has changed"
    return [f"arkdev train --resume {run}   ({kept})", "arkdev train   (begins anew)"]


def rewards_told(steps: Sequence[StepRecord]) -> str:
    """From the first to the last step, and in validation."""
    parts = []
    for phase, what in ((TRAIN, "in training"), (TEST, "in validation")):
        means = [step.reward_mean for step in steps if step.phase == phase]
        known = [mean for mean in means if mean is not None]
        if known:
            first = f"{number(known[0])} to " if len(known) > 1 else ""
            parts.append(f"{first}{number(known[-1])} {what}")
    return ", ".join(parts) or "none"
