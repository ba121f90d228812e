"""What `arkdev faas plan` prints, and the paragraph of a report with ``--faas``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from arkdev.cli.terminal import Symbols, duration, number_table, plural, printable, symbols
from arkdev.errors import RunError
from arkdev.faas_emulator.capacity.fitting import ServiceFit
from arkdev.faas_emulator.capacity.forecast import Arrivals, Estimate, JobForecast
from arkdev.faas_emulator.capacity.loads import Batch
from arkdev.faas_emulator.capacity.memory import HEADROOM, MemoryFit
from arkdev.faas_emulator.capacity.search import TAIL, FunctionPlan, Row
from arkdev.flows.faas_capacity import (
    CapacityAnswer,
    CapacityRequest,
    ClosedForm,
    JobNumbers,
    load_of,
    measured_functions,
    paste_text,
    plan_capacity,
)
from arkdev.job.job import Job
from arkdev.job.paths import shown_path
from arkdev.runs.reader import RunReader

_MOST_IN_A_REPORT = 512
"""Rollouts of a batch that a report plans for: it takes a few seconds."""


def print_answer(
    answer: CapacityAnswer, out: Console, *, run: str, price: float | None = None
) -> None:
    """Print the answer, with the table behind it and where its numbers come from."""
    signs = symbols(out)
    first, *notes = answer.notes
    out.print(Text(printable(f"from run {run}, {first}")), soft_wrap=True)
    for name, plan in answer.plans.items():
        _print_function(answer, name, plan, out=out, price=price)
    out.print()
    for sentence in _together(answer):
        out.print(Text(sentence), soft_wrap=True)
    for note in (*_where_from(answer, signs), *notes):
        out.print(Text(printable(f"note: {note}"), style="dim"), soft_wrap=True)


def print_capacity(
    folder: Path, job: Job | None, out: Console, *, run: str, say: Callable[[str], None]
) -> None:
    """Print what the report of a run with ``--faas`` says of its functions' settings.

    `say` is told that it takes a while.
    """
    reader = RunReader(folder)
    numbers = None
    if job is not None:
        numbers = JobNumbers(shown_path(job.source), job.batch_size, job.num_generations)
    request = CapacityRequest()
    try:
        functions = measured_functions(reader)
    except RunError:
        return  # no instance answered: the report says why
    load, _ = load_of(reader, request, functions=functions, job=numbers)
    out.print()
    if isinstance(load, Batch) and load.num_rollouts > _MOST_IN_A_REPORT:
        text = f"Which settings {load.num_rollouts:,} rollouts a batch need: arkdev faas plan {run}"
        out.print(Text(text, style="dim"), soft_wrap=True)
        return
    say("working out which settings the functions need (some seconds) ...")
    answer = plan_capacity(reader, request, job=numbers)
    signs = symbols(out)
    out.print(Text(printable(answer.notes[0])), soft_wrap=True)
    for name, plan in answer.plans.items():
        out.print(Text(printable(_headline(answer, name, plan, signs))), soft_wrap=True)
    for sentence in _together(answer):
        out.print(Text(sentence), soft_wrap=True)
    text = f"the settings behind it: arkdev faas plan {run}"
    out.print(Text(printable(text), style="dim"), soft_wrap=True)


def _print_function(
    answer: CapacityAnswer, name: str, plan: FunctionPlan, *, out: Console, price: float | None
) -> None:
    signs = symbols(out)
    out.print()
    headline = Text(printable(_headline(answer, name, plan, signs)), style="bold")
    out.print(headline, soft_wrap=True)
    if plan.chosen is not None:
        out.print(Text(f"  {paste_text(plan.chosen.runtime)}", style="green"), soft_wrap=True)
    out.print(_table(answer, plan, price=price))
    out.print(Text("  *  chosen  =  today's; late: queued longer than its timeout", style="dim"))
    for mark in dict.fromkeys(mark for row in plan.rows for mark in row.marks):
        letter = _letter(plan, mark)
        out.print(Text(f"  {letter}  {mark}", style="dim"), soft_wrap=True)
    if name in answer.closed_forms:
        text = _closed(answer.closed_forms[name])
        out.print(Text(f"  {text}", style="dim"), soft_wrap=True)


def _letter(plan: FunctionPlan, mark: str) -> str:
    marks = list(dict.fromkeys(mark for row in plan.rows for mark in row.marks))
    return chr(ord("a") + marks.index(mark))


def _load(answer: CapacityAnswer, signs: Symbols) -> str:
    load = answer.load
    if isinstance(load, Arrivals):
        return f"{load.rate:g} calls/s"
    return f"batch {load.batch_size} {signs.times} {load.num_generations} generations"


def _headline(answer: CapacityAnswer, name: str, plan: FunctionPlan, signs: Symbols) -> str:
    today, load = plan.today, _load(answer, signs)
    late = f"{_share(today.forecast.waits_too_long)} of requests queue longer than the timeout"
    at_today = f"at today's settings p99 {duration(today.forecast.total_p99.value)}, {late}"
    if plan.chosen is None:
        return f"{name}: {load}: {plan.why_none}; {at_today}"
    runtime = plan.chosen.runtime
    p99 = plan.chosen.forecast.total_p99
    needed = "is served as well by" if today.meets else "needs"
    return (
        f"{name}: {load} {needed} max_concurrency {runtime.max_concurrency} {signs.times} "
        f"{plural(runtime.max_replicas or 1, 'replica')} of {runtime.instance.name}; "
        f"p99 {_range(p99)}; {at_today}"
    )


def _range(estimate: Estimate) -> str:
    text = duration(estimate.value)
    low, high = duration(estimate.low), duration(estimate.high)
    return text if low == high else f"{text} ({low} to {high})"


def _share(estimate: Estimate) -> str:
    percent = 100 * estimate.value
    return "0 %" if not percent else f"{percent:.2g} %" if percent < 10 else f"{percent:.0f} %"


def _table(answer: CapacityAnswer, plan: FunctionPlan, *, price: float | None) -> Any:
    is_rate = isinstance(answer.load, Arrivals)
    headers = ["setting", "p99", "9 of 10", "queue p99", "late"]
    headers += ["" if is_rate else "makespan", "core-h", "cost" if price else ""]
    return number_table(headers, [_cells(plan, row, price) for row in plan.rows])


def _cells(plan: FunctionPlan, row: Row, price: float | None) -> list[str | Text]:
    runtime, forecast = row.runtime, row.forecast
    low, high = runtime.min_replicas or 0, runtime.max_replicas or 1
    replicas = f"{high}" if low == high else f"{low}..{high}"
    tags = "".join(_letter(plan, mark) for mark in row.marks)
    sign = f"{'*' if row.is_chosen else ' '}{'=' if row.is_today else ' '}"
    name = f"{sign} {runtime.instance.name} {runtime.max_concurrency} x {replicas} {tags}"
    style = "bold green" if row.is_chosen else "" if row.meets else "dim"
    tail = forecast.total_p99
    return [
        Text(name, style=style),
        Text(duration(tail.value), style="" if row.meets else "red"),
        f"{duration(tail.low)}..{duration(tail.high)}",
        duration(forecast.queued_p99.value),
        _share(forecast.waits_too_long),
        duration(row.makespan.value) if row.makespan else "",
        f"{row.core_hours.value:.2g}",
        f"{row.core_hours.value * price:.3g}" if price else "",
    ]


def _together(answer: CapacityAnswer) -> Iterator[str]:
    for words, job in (
        ("with these settings a batch takes", answer.together_chosen),
        ("with today's", answer.together_today),
    ):
        if job is not None and job.makespan is not None:
            yield f"{words} {_range(job.makespan)} until all is graded"


def _closed(form: ClosedForm) -> str:
    return (
        f"mean wait: M/M/c {duration(form.mmc_mean_wait_s)}, M/G/c (Allen-Cunneen) "
        f"{duration(form.mgc_mean_wait_s)}, simulated {duration(form.simulated_mean_wait_s)}, with "
        f"{100 * form.utilisation:.0f} % of the places busy"
    )


def _where_from(answer: CapacityAnswer, signs: Symbols) -> Iterator[str]:
    values = asdict(answer.load)
    told = [f"{name} {values[name]} ({where})" for name, where in answer.origins.items()]
    yield f"the load: {', '.join(told)}"
    target = answer.target
    if target.makespan_s is not None:
        yield f"the target: nine of ten batches within {target.makespan_s:g} s"
    elif target.p99_s is not None:
        yield f"the target: p99 of each function within {target.p99_s:g} s"
    else:
        tails = [f"{name} {duration(p.target_p99_s or 0)}" for name, p in answer.plans.items()]
        yield (
            f"the target, since none is given: p99 within {TAIL:g} {signs.times} that of calls "
            f"that never wait: {', '.join(tails)}"
        )
    for name, fit in answer.fits.items():
        yield f"{name}: {_fit(fit)}; {_memory(answer.memory[name])}"
    per = "an hour" if isinstance(answer.load, Arrivals) else "a batch"
    yield (
        f"cost: core-hours of all instances for {per}, from the order of each to its end, without "
        "what is idle between batches; what memory costs is not known, so less of it wins between "
        "equals"
    )
    yield "ranges: nine of ten simulated runs, each of what is as likely as what was measured"


def _fit(fit: ServiceFit) -> str:
    model, function = fit.model, fit.function
    text = (
        f"{len(fit.calls)} measured calls, alone {duration(model.mean_s)} on average, at most "
        f"{plural(function.max_concurrent, 'call')} in an instance"
    )
    if not fit.is_told:
        return f"{text}; {fit.evidence}, so no more than that are tried"
    low, high = (100 * share for share in fit.cpu_share_range)
    cores = "as many cores as it has" if fit.uses_many_cores else "one core"
    return (
        f"{text}; computing {100 * fit.cpu_share:.0f} % of it ({low:.0f} to {high:.0f}) on {cores} "
        f"({fit.evidence})"
    )


def _memory(memory: MemoryFit | None) -> str:
    if memory is None:
        return "memory was not measured, so the size is today's"
    if memory.is_told:
        return (
            f"memory {memory.base_mb:.0f} MiB and {memory.per_call_mb:.1f} a call, times {HEADROOM}"
        )
    return (
        f"memory peak {memory.peak_mb:.0f} MiB with {plural(memory.peak_calls, 'call')}: what a "
        f"call adds cannot be told of so few instances, so all is taken to grow with calls, times "
        f"{HEADROOM}"
    )


def document_of(answer: CapacityAnswer, folder: Path, *, price: float | None) -> dict[str, Any]:
    """Return the JSON document."""
    load = answer.load
    return {
        "run": folder.name,
        "load": {"kind": "poisson" if isinstance(load, Arrivals) else "batch", **asdict(load)},
        "origins": dict(answer.origins),
        "target": asdict(answer.target),
        "functions": [
            _function_document(answer, name, plan, price) for name, plan in answer.plans.items()
        ],
        "makespan": _makespan(answer.together_chosen),
        "makespan_today": _makespan(answer.together_today),
        "notes": list(answer.notes),
    }


def _optional(estimate: Estimate | None) -> dict[str, float] | None:
    return asdict(estimate) if estimate else None


def _makespan(job: JobForecast | None) -> dict[str, float] | None:
    return _optional(job.makespan) if job else None


def _function_document(
    answer: CapacityAnswer, name: str, plan: FunctionPlan, price: float | None
) -> dict[str, Any]:
    fit, memory = answer.fits[name], answer.memory[name]
    form = answer.closed_forms.get(name)
    return {
        "name": name,
        "kind": fit.function.kind.value,
        "runtime": paste_text(plan.chosen.runtime) if plan.chosen else None,
        "why_none": plan.why_none,
        "target_p99_s": plan.target_p99_s,
        "best_p99_s": plan.best_p99_s,
        "service": {
            "num_calls": len(fit.calls),
            "mean_alone_s": fit.model.mean_s,
            "cpu_share": fit.cpu_share,
            "cpu_share_range": list(fit.cpu_share_range),
            "is_told": fit.is_told,
            "evidence": fit.evidence,
            "max_concurrent": fit.function.max_concurrent,
        },
        "memory": asdict(memory) if memory else None,
        "closed_form": asdict(form) if form else None,
        "settings": [_row_document(row, price) for row in plan.rows],
    }


def _row_document(row: Row, price: float | None) -> dict[str, Any]:
    runtime, forecast = row.runtime, asdict(row.forecast)
    return {
        "instance": runtime.instance.name,
        "max_concurrency": runtime.max_concurrency,
        "min_replicas": runtime.min_replicas,
        "max_replicas": runtime.max_replicas,
        "meets_target": row.meets,
        "is_chosen": row.is_chosen,
        "is_today": row.is_today,
        "marks": list(row.marks),
        "core_hours": asdict(row.core_hours),
        "cost": None if price is None else row.core_hours.value * price,
        "makespan": _optional(row.makespan),
        "forecast": forecast,
    }
