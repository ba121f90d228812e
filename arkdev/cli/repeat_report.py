"""The report of ``arkdev test grader --repeat N``: noise, sign errors, calls needed, agreement."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from arkdev.cli.report import MAX_WIDTH
from arkdev.cli.terminal import (
    Section,
    Symbols,
    facts,
    number,
    number_table,
    plural,
    printable,
    symbols,
    titled,
)
from arkdev.flows.repeat_graders import RepeatOutcome
from arkdev.harness.bootstrap import Estimate
from arkdev.harness.judge_noise import WANTED, JudgeNoise
from arkdev.harness.repeated_grading import GraderAgreement, RepeatedGrader


def render_repeat(outcome: RepeatOutcome, console: Console) -> None:
    """Print the report."""
    signs = symbols(console)
    width = min(console.width, MAX_WIDTH)
    for grader in outcome.graders:
        console.print(titled(_section(grader, signs), signs=signs), width=width)
    if outcome.agreement is not None:
        console.print(titled(_agreement(outcome.agreement, signs), signs=signs), width=width)
    console.print()
    if outcome.num_small_groups:
        left_out = plural(outcome.num_small_groups, "group")
        text = f" {left_out} left out: fewer than two successful rollouts have no spread"
        console.print(Text(text, style="dim"), width=width)
    for grader in outcome.graders:
        console.print(_headline(grader), width=width)


def _headline(grader: RepeatedGrader) -> Text:
    name, noise = printable(grader.name), grader.noise
    if noise is None:
        return Text(f"{name}: nothing could be compared", style="bold red")
    if noise.is_deterministic:
        said = f"the same reward in all {noise.num_gradings} gradings: deterministic"
        return Text(f"{name}: {said}, one call is enough", style="bold green")
    needed = noise.calls_needed
    if needed.value is None:
        said = f"no number of calls up to 1024 brings sign errors under {WANTED:.0%}"
        return Text(f"{name}: {said}", style="bold red")
    style = "bold green" if needed.value == 1 else "bold yellow"
    calls = "1 call is enough" if needed.value == 1 else f"the mean of {needed.value:.0f} calls"
    doing = "" if needed.value == 1 else f" brings sign errors of advantages under {WANTED:.0%}"
    return Text(f"{name}: {calls}{doing}{_interval(needed, digits=0)}", style=style)


def _section(grader: RepeatedGrader, signs: Symbols) -> Section:
    parts: list[RenderableType] = []
    if grader.noise is not None:
        parts.append(facts(_facts(grader.noise, signs)))
        if not grader.noise.is_deterministic:
            parts += [Text(), _calls(grader.noise, signs)]
    if grader.num_left_out:
        text = f" {plural(grader.num_left_out, 'trajectory')} without a reward each time left out"
        parts.append(Text(text.replace("trajectorys", "trajectories"), style="yellow"))
    if grader.num_failed:
        text = f" failed {grader.num_failed} times: {printable(grader.error or 'no error text')}"
        parts.append(Text(text, style="red"))
    return Section(printable(grader.name), Group(*parts))


def _facts(noise: JudgeNoise, signs: Symbols) -> Iterator[tuple[str, str]]:
    yield (
        "graded",
        f"{noise.num_trajectories} trajectories of {plural(noise.num_groups, 'group')}, "
        f"{noise.num_gradings} {signs.times} each",
    )
    yield "noise", f"{_estimate(noise.noise_sd)}   sd within a trajectory"
    yield "spread", f"{_estimate(noise.spread_sd)}   sd within a group, without the noise"
    yield "noise / spread", _estimate(noise.noise_over_spread)
    yield "reliability", f"{_estimate(noise.reliability)}   ICC(1,1)"
    if noise.observed_sign_errors is not None and not noise.is_deterministic:
        expected = noise.expected_sign_errors
        formula = "" if expected is None else f"; {expected:.1%} if rewards were normal"
        yield (
            "sign errors",
            f"{noise.observed_sign_errors:.1%} of advantages, one grading against the mean of the "
            f"others{formula}",
        )


def _calls(noise: JudgeNoise, signs: Symbols) -> RenderableType:
    rows = [
        (
            str(errors.num_calls),
            _percent(errors.from_repeats.value),
            _percent_range(errors.from_repeats),
            _percent(errors.lost),
            _percent(errors.by_formula),
        )
        for errors in noise.sign_errors
    ]
    headers = ("mean of calls", "sign errors", "90 %", "become 0", "if normal")
    by_formula = noise.calls_by_formula
    normal = "no number" if by_formula is None else str(by_formula)
    needed = noise.calls_needed
    value = "no number up to 1024" if needed.value is None else f"{needed.value:.0f}"
    under = f"under {WANTED:.0%} with {value}{_interval(needed, digits=0)}, if normal {normal}"
    return Group(
        number_table(headers, rows, without=("if normal", "90 %") if signs.is_narrow else ()),
        Text(f" {under}", style="dim"),
    )


def _agreement(agreement: GraderAgreement, signs: Symbols) -> Section:
    rows = (
        ("rewards", _estimate(agreement.rewards)),
        ("advantages", f"{_estimate(agreement.advantages)}   whatever the scale of the rewards"),
        ("", f"Krippendorff's alpha, interval; {agreement.num_trajectories} trajectories' means"),
    )
    return Section("Agreement of the graders", facts(rows))


def _estimate(estimate: Estimate) -> str:
    return f"{number(estimate.value)}{_interval(estimate)}"


def _interval(estimate: Estimate, *, digits: int | None = None) -> str:
    """`` (0.1 to 0.3)``; nothing where no interval is known."""
    if estimate.low is None:
        return ""
    low, high = (
        "more" if end is None else number(end) if digits is None else f"{end:.{digits}f}"
        for end in (estimate.low, estimate.high)
    )
    return f" ({low} to {high})"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _percent_range(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "-"
    return f"{estimate.low:.1%} to {estimate.high:.1%}"
