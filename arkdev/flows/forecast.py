"""`arkdev forecast`: what a run that is there says of the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arkdev.errors import RunError
from arkdev.harness.forecast.forecast import Forecast, forecast_job
from arkdev.harness.forecast.observed import Observations, ObservedGrader, ObservedRun
from arkdev.harness.forecast.size import JobSize
from arkdev.job.prices import Prices
from arkdev.plugin.decorators import PluginKind
from arkdev.runs.reader import RunReader

KINDS = ("debug", "test")
_OTHER_SIGNAL = {"PPO": "a critic", "OPD": "a teacher", "OPDLoRA": "a teacher"}
_SCRIPTED = "scripted"
_LOCAL = "local"


@dataclass(frozen=True)
class AskedSize:
    """What the command line says of the job; None: what the run's job says."""

    num_steps: int | None = None
    batch_size: int | None = None
    num_generations: int | None = None


def forecast_run(reader: RunReader, *, prices: Prices, asked: AskedSize | None = None) -> Forecast:
    """Forecast the job of a run, or one of the size that is asked for.

    Raises `RunError` for a run that is neither a debug run nor a test of plugins.
    """
    manifest = reader.manifest
    if manifest.kind not in KINDS:
        raise RunError(
            f"run {manifest.run_id} is of the kind {manifest.kind}: a forecast needs a debug run "
            "or a test, whose rollouts all come from one policy",
            hint="arkdev debug ends with one",
        )
    run = observed_run(reader)
    size = job_size(manifest.settings, run, asked or AskedSize())
    return forecast_job(
        run,
        size,
        prices=prices,
        model=model_of(manifest.settings),
        notes=tuple(_notes(reader, run, size)),
    )


def observed_run(reader: RunReader) -> ObservedRun:
    """Read what a forecast needs; a few numbers for each group are kept in memory."""
    settings = reader.manifest.settings
    observations = Observations()
    makes_groups = False
    for trajectory in reader.trajectories():
        makes_groups = makes_groups or trajectory.call_size > 1
        observations.add_trajectory(trajectory)
    size = settings.get("num_generations")
    num_generations = size if isinstance(size, int) else 1
    for group in reader.groups():
        observations.add_group(group, num_generations=num_generations)
    threshold = settings.get("success_threshold")
    return ObservedRun(
        groups=observations.groups,
        prompts=observations.prompts,
        num_generations=num_generations,
        concurrency=int(settings.get("concurrency") or 1),
        graders=tuple(map(_grader, settings.get("graders") or ())),
        success_threshold=1.0 if threshold is None else float(threshold),
        makes_groups=makes_groups,
        has_rewards_as_signal=_method(settings) not in _OTHER_SIGNAL,
        num_failed_attempts=observations.num_failed_attempts,
        judge_calls=_judge_calls(reader, observations.num_graded),
    )


def job_size(settings: Mapping[str, Any], run: ObservedRun, asked: AskedSize) -> JobSize:
    """Return the size that is asked for, else the job's, else that of the run."""
    job = settings.get("training") or {}
    return JobSize(
        num_steps=asked.num_steps or job.get("num_steps") or settings.get("num_steps"),
        batch_size=asked.batch_size
        or job.get("batch_size")
        or settings.get("batch_size")
        or run.concurrency,
        num_generations=asked.num_generations or job.get("num_generations") or run.num_generations,
        num_samples=job.get("num_samples"),
    )


def model_of(settings: Mapping[str, Any]) -> str:
    """Return the name that the price table knows the run's model by."""
    endpoint = settings.get("endpoint") or {}
    return str(endpoint.get("model") or endpoint.get("name") or "")


def _method(settings: Mapping[str, Any]) -> str:
    return str((settings.get("training") or {}).get("customization_type") or "")


def _grader(document: Mapping[str, Any]) -> ObservedGrader:
    limit = document.get("request_concurrency")
    return ObservedGrader(
        name=str(document.get("name")),
        max_calls=limit if isinstance(limit, int) else None,
        is_single=document.get("kind") == PluginKind.SINGLE_GRADER.value,
    )


def _judge_calls(reader: RunReader, num_graded: int) -> float | None:
    """Return the calls to the scripted judge for each trajectory; others went past arkdev."""
    calls = [event.get("calls") for event in reader.events() if event.get("kind") == "judge"]
    known = [number for number in calls if isinstance(number, int)]
    return sum(known) / num_graded if sum(known) and num_graded else None


def _notes(reader: RunReader, run: ObservedRun, size: JobSize) -> list[str]:
    settings = reader.manifest.settings
    notes = []
    if reader.status != "finished":
        notes.append(f"the run is {reader.status}: this is what it had finished")
    if (settings.get("endpoint") or {}).get("name") == _SCRIPTED:
        notes.append("the scripted model answered: a real one has other times, tokens and rewards")
    if (settings.get("endpoint") or {}).get("name") == _LOCAL:
        notes.append("a model on this machine answered: the platform's has other times and tokens")
    if settings.get("inject"):
        notes.append(f"faults were injected: {settings['inject']}")
    method = _method(settings)
    if method in _OTHER_SIGNAL:
        notes.append(
            f"{_OTHER_SIGNAL[method]} teaches in jobs of {method}: equal rewards are no loss"
        )
    if size.num_steps and not (settings.get("training") or {}).get("num_steps"):
        notes.append(f"the job gives no num_steps: {size.num_steps} are taken")
    if run.concurrency != size.batch_size:
        notes.append(
            f"times were measured with {run.concurrency} rollouts at once, the job runs "
            f"{size.batch_size}"
        )
    if run.num_failed_attempts:
        notes.append(
            f"{run.num_failed_attempts} attempts failed; their time is in it, their tokens are not"
        )
    return notes
