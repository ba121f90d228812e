"""The forecast of a job, for people: its rows, which a terminal and the page of a run share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from arkdev.cli.report import MAX_WIDTH
from arkdev.cli.terminal import (
    Section,
    Symbols,
    duration,
    number_table,
    plural,
    printable,
    symbols,
    titled,
)
from arkdev.harness.forecast.forecast import Forecast
from arkdev.harness.forecast.quantity import Interval, Quantity
from arkdev.harness.forecast.settled import SettledPrompt, SettledPrompts
from arkdev.harness.forecast.signal import AT_LEAST, MODEL, SignalForecast
from arkdev.harness.forecast.solving import SolvingForecast

HEADERS = ("", "forecast", "true mean", "next one")
SIZE_HEADERS = ("rollouts each", "useful of 1,000", "true mean", "known by")
MEANING = (
    "Both intervals are 90 %. True mean: where endless runs would end up. Next one: what one such "
    "job, step or 1,000 samples will give."
)
_MAX_PROMPTS = 8
_LIKELY = 0.5
"""A chance of a signal from which on a prompt is kept."""

Row = tuple[str, str, str, str]
Format = Callable[[float], str]


def percent(value: float) -> str:
    """Format a share: whole percents, more digits near 0 and 1.

    >>> percent(0.5), percent(0.004), percent(0.999), percent(1.0)
    ('50%', '0.4%', '99.9%', '100%')
    """
    if 0 < value < 0.01 or 0.99 < value < 1:
        return f"{100 * value:.1f}%"
    return f"{100 * value:.0f}%"


def amount(value: float) -> str:
    """Format a count, tokens or money in few characters.

    >>> amount(0), amount(3.14), amount(412.3), amount(12345.6), amount(3.2e6), amount(4.5e9)
    ('0', '3.1', '412', '12,346', '3.20 M', '4,500 M')
    """
    if value >= 1e6:
        return f"{value / 1e6:,.2f} M" if value < 1e8 else f"{value / 1e6:,.0f} M"
    if value >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def hours(seconds: float) -> str:
    """Format a long time: from an hour on hours and minutes."""
    if seconds < 3600:
        return duration(seconds)
    whole, minutes = divmod(round(seconds / 60), 60)
    return f"{whole}h{minutes:02d}m"


def sections(forecast: Forecast, signs: Symbols) -> list[Section]:
    """Build the sections of a forecast."""
    dash = signs.dash
    found = [_main(forecast, signs)]
    signal = forecast.signal
    if signal is not None and len(signal.by_num_generations) > 1:
        rows = list(size_rows(signal, dash=dash))
        table = number_table(SIZE_HEADERS, rows)
        found.append(Section("Useful groups by num_generations", table))
    if forecast.solving is not None:
        found.append(_solving(forecast.solving, signs))
    if forecast.settled is not None and forecast.settled.num_prompts:
        found.append(_settled(forecast.settled))
    return found


def print_forecast(forecast: Forecast, console: Console) -> None:
    """Print it."""
    signs = symbols(console)
    for section in sections(forecast, signs):
        console.print(titled(section, signs=signs), width=min(console.width, MAX_WIDTH))


def headline(forecast: Forecast) -> str:
    """Say what was measured, and of which job it is the forecast."""
    job = forecast.job
    steps = "steps" if job.num_steps is None else plural(job.num_steps, "step")
    return (
        f"From {plural(forecast.num_groups, 'group')} of {plural(forecast.num_prompts, 'prompt')} "
        f"with {plural(forecast.num_generations, 'rollout')} each, for a job of {steps} of "
        f"{plural(job.groups_per_step, 'group')} with {job.num_generations} each."
    )


def main_rows(forecast: Forecast, *, dash: str) -> Iterator[Row]:
    """Yield the rows of the main table."""
    signal = forecast.signal
    if signal is not None:
        if forecast.job.num_generations > 1:
            yield row("groups without signal", signal.zero_variance, percent, dash=dash)
        yield row("useful groups of 1,000 samples", signal.useful_per_1000, amount, dash=dash)
        yield row("useful groups of a step", signal.useful_per_step, amount, dash=dash)
        yield row("trajectories that teach, step", signal.trajectories_per_step, amount, dash=dash)
    yield row("time of a step", forecast.time.step, hours, dash=dash)
    yield row("time of all steps", forecast.time.total, hours, dash=dash)
    tokens = forecast.tokens
    yield row("prompt tokens of a step", tokens.prompt_per_step, amount, dash=dash)
    yield row("completion tokens of a step", tokens.completion_per_step, amount, dash=dash)
    yield row("prompt tokens in all", tokens.prompt_total, amount, dash=dash)
    yield row("completion tokens in all", tokens.completion_total, amount, dash=dash)
    if tokens.judge_calls_per_step is not None:
        yield "judge calls of a step", amount(tokens.judge_calls_per_step), "", ""
    cost = forecast.cost
    if cost is not None:
        unit = printable(cost.currency)
        yield row(f"tokens of a step, {unit}", cost.tokens_per_step, amount, dash=dash)
        yield row(f"tokens in all, {unit}", cost.tokens_total, amount, dash=dash)
        if cost.training_total is not None:
            yield row(f"training hours, {unit}", cost.training_total, amount, dash=dash)


def size_rows(signal: SignalForecast, *, dash: str) -> Iterator[Row]:
    """Yield useful groups for each number of generations."""
    known_by = {MODEL: "a model, rough", AT_LEAST: "lower bound"}
    for at in signal.by_num_generations:
        value = _value(at.useful_per_1000, amount, dash=dash)
        if at.how == AT_LEAST and value != dash:
            value = f"at least {value}"
        shown = _interval(at.useful_per_1000.true, amount, dash=dash)
        yield str(at.num_generations), value, shown, known_by.get(at.how, at.how)


def pass_rows(solving: SolvingForecast, *, dash: str) -> Iterator[Row]:
    """Yield pass@k of all prompts."""
    for one in solving.pass_at_k:
        yield row(f"pass@{one.k}", one.chance, percent, dash=dash)


def difficulty_headers(solving: SolvingForecast) -> tuple[str, ...]:
    """Return the headers of `difficulty_rows`."""
    k = solving.difficulty[0].pass_at_k[-1].k
    last = (f"pass@{k}", "true mean ") if k > 1 else ()
    return (f"solved of {solving.num_binning}", "groups", "pass@1", "true mean", *last)


def difficulty_rows(solving: SolvingForecast, *, dash: str) -> Iterator[tuple[str, ...]]:
    """Yield pass@1 and the largest pass@k of each difficulty."""
    for one in solving.difficulty:
        counts = str(one.low) if one.low == one.high else f"{one.low} to {one.high}"
        ends = one.pass_at_k if len(one.pass_at_k) == 1 else (one.pass_at_k[0], one.pass_at_k[-1])
        passes = [
            text
            for each in ends
            for text in (
                _value(each.chance, percent, dash=dash),
                _interval(each.chance.true, percent, dash=dash),
            )
        ]
        yield (counts, f"{one.num_groups:.1f}", *passes)


def settled_lines(settled: SettledPrompts) -> Iterator[tuple[str, list[str]]]:
    """Yield a line for the prompts to drop and to make easier, with some of them."""
    kinds = (
        (settled.always_solved, "always solved", "drop or harden", settled.signal_after_solved),
        (settled.never_solved, "never solved", "make easier", settled.signal_after_unsolved),
    )
    for prompts, what, advice, again in kinds:
        if not prompts:
            continue
        is_open = settled.is_too_few or (again.value or 0.0) > _LIKELY
        advice = " so far" if is_open else f": {advice}"
        line = f"{len(prompts)} of {settled.num_prompts} prompts {what}{advice}"
        if again.value is not None and again.true is not None and again.true.high is not None:
            low, high = percent(again.true.low), percent(again.true.high)
            line += f"; next time {percent(again.value)} of them have a signal ({low} to {high})"
        yield line, [_prompt(prompt) for prompt in prompts[:_MAX_PROMPTS]]


def too_few_warning(settled: SettledPrompts) -> str:
    """Say that too few rollouts were made to call a prompt settled; "" when there were enough."""
    if not settled.fewest_rollouts or not settled.is_too_few or settled.rate_bound is None:
        return ""
    bound = percent(settled.rate_bound)
    return (
        f"{settled.fewest_rollouts} rollouts are too few to tell: a prompt that is solved {bound} "
        "of the time may look always solved; 8 or more rollouts of each (--n-sample) say more"
    )


def remarks(forecast: Forecast) -> Iterator[str]:
    """Yield what the numbers leave out, or rest on."""
    signal = forecast.signal
    if signal is not None:
        if signal.left:
            left = ", ".join(f"{number} {why}" for why, number in signal.left.items())
            yield f"groups in no batch count as not useful: {left}"
        if signal.groups_wanted is not None:
            yield f"the useful share to ± 10 points would take {signal.groups_wanted} groups"
    yield from dict.fromkeys(_reasons(forecast))
    if forecast.tokens.num_uncounted:
        yield f"{plural(forecast.tokens.num_uncounted, 'group')} without token counts left out"
    if forecast.cost is None:
        yield "no prices: write them under [prices] in arkworkspace.toml for the cost"
    yield "times are of rollouts and grading, without updates of the weights and validation"
    yield "all of it at the weights of this run: training changes what is solved"
    yield from forecast.notes


def row(name: str, quantity: Quantity, shown: Format, *, dash: str) -> Row:
    """Return the row of one quantity."""
    return (
        name,
        _value(quantity, shown, dash="not known"),
        _interval(quantity.true, shown, dash=dash),
        _interval(quantity.job, shown, dash=dash),
    )


def _main(forecast: Forecast, signs: Symbols) -> Section:
    without = ("true mean",) if signs.is_narrow else ()
    parts: list[RenderableType] = [
        _line(headline(forecast), style=""),
        _line(MEANING),
        number_table(HEADERS, list(main_rows(forecast, dash=signs.dash)), without=without),
    ]
    parts += [_line(text, style="yellow") for text in remarks(forecast)]
    return Section("Signal forecast", Group(*parts))


def _solving(solving: SolvingForecast, signs: Symbols) -> Section:
    dash = signs.dash
    without = ("true mean", "true mean ") if signs.is_narrow else ()
    parts: list[RenderableType] = [
        number_table(HEADERS, list(pass_rows(solving, dash=dash)), without=without)
    ]
    if solving.difficulty:
        rows = list(difficulty_rows(solving, dash=dash))
        parts += [Text(), number_table(difficulty_headers(solving), rows, without=without)]
    parts += [_line(line) for line in solving_notes(solving)]
    return Section("Solved: pass@k, and by difficulty", Group(*parts))


def solving_notes(solving: SolvingForecast) -> Iterator[str]:
    """Yield how the table of pass@k is made."""
    if solving.difficulty:
        yield (
            f"difficulty: how many of {solving.num_binning} rollouts of a prompt solved it; pass@k "
            "is of its other rollouts, so that luck is not counted twice"
        )
    if solving.num_incomplete:
        yield f"{plural(solving.num_incomplete, 'group')} without a reward for each left out"


def _settled(settled: SettledPrompts) -> Section:
    parts: list[RenderableType] = []
    for line, prompts in settled_lines(settled):
        parts.append(_line(line, style=""))
        parts += [_line(prompt, indent=3) for prompt in prompts]
    if warning := too_few_warning(settled):
        parts.append(_line(warning, style="yellow"))
    if not parts:
        parts.append(_line("none: every prompt gave one"))
    return Section("Prompts without a signal", Group(*parts))


def _line(text: str, *, style: str = "dim", indent: int = 1) -> Padding:
    """A line that wraps inside its indent."""
    return Padding(Text(printable(text), style=style), (0, 0, 0, indent))


def _prompt(prompt: SettledPrompt) -> str:
    return f"{prompt.sample_index}  {prompt.text}"


def _reasons(forecast: Forecast) -> Iterator[str]:
    """Yield why numbers of the main table are not known."""
    quantities: dict[str, tuple[Quantity, ...]] = {
        "time": (forecast.time.step, forecast.time.total),
        "tokens": (forecast.tokens.prompt_per_step, forecast.tokens.prompt_total),
    }
    if forecast.signal is not None:
        signal = forecast.signal
        quantities["signal"] = (
            signal.zero_variance,
            signal.useful_per_1000,
            signal.trajectories_per_step,
        )
    if forecast.cost is not None:
        quantities["cost"] = (forecast.cost.tokens_per_step, forecast.cost.tokens_total)
    for name, found in quantities.items():
        for quantity in found:
            if quantity.why:
                known = "not known" if quantity.value is None else "without an interval"
                yield f"{name} {known}: {quantity.why}"


def _value(quantity: Quantity, shown: Format, *, dash: str) -> str:
    return dash if quantity.value is None else shown(quantity.value)


def _interval(interval: Interval | None, shown: Format, *, dash: str) -> str:
    if interval is None:
        return dash
    if interval.high is None:
        return f"{shown(interval.low)} or more"
    return f" {shown(interval.low)} to {shown(interval.high)}"
