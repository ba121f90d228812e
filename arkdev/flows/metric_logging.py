"""Metrics of a training on their way to the sinks of ``--log-to``, beside the run folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from arkdev.flows.recording import PluginTestObserver
from arkdev.flows.rollout_run import RolloutRun
from arkdev.flows.train_plan import TrainPlan
from arkdev.harness.steps import StepRecord
from arkdev.observe.metric_sinks.sinks import CLOSE_S, LoggedRun, Told, open_sinks
from arkdev.runs.masking import has_secret_name, masked_text, masked_value, usable_secrets

_INTERRUPTED_CLOSE_S = 1.0

LogMetrics = Callable[[StepRecord], None]


@asynccontextmanager
async def logged_metrics(
    plan: TrainPlan, run: RolloutRun, observer: PluginTestObserver
) -> AsyncIterator[LogMetrics]:
    """Open the sinks that are asked for; yield what sends them the metrics of a step.

    Raises `MissingExtraError`. A sink that fails is warned of once, and the training goes on.
    """
    names = plan.train.log_to
    if not names:
        yield lambda _: None
        return

    secrets = usable_secrets(value for name, value in os.environ.items() if has_secret_name(name))

    def shown(text: str) -> str:
        """What a package says may hold its server's URL, or its key."""
        return masked_text(run.folder.masked_output(text), secrets=secrets)

    def warn(text: str) -> None:
        run.folder.event("warning", text=shown(text))
        observer.on_warning(shown(text))

    def tell(text: str) -> None:
        observer.on_progress(shown(text))

    logged = LoggedRun(
        run_id=run.folder.run_id,
        folder=run.folder.folder,
        project=plan.workspace.root.name,
        settings=settings_of(plan),
        first_step=plan.resumed_step or 0,
    )
    told = Told(tell=tell, warn=warn)
    # importing a sink's package may take seconds
    sinks = await asyncio.to_thread(open_sinks, names, logged, told=told)

    def log(record: StepRecord) -> None:
        for sink in sinks:
            sink.log(record.metrics, step=record.step)

    has_failed, within_s = True, _INTERRUPTED_CLOSE_S
    try:
        yield log
        has_failed, within_s = False, CLOSE_S
    finally:
        for sink in sinks:
            await asyncio.to_thread(sink.close, has_failed=has_failed, within_s=within_s)


def settings_of(plan: TrainPlan) -> dict[str, str | int | float | bool]:
    """Return what a sink shows of a training: plain values, without secrets."""
    values = {
        "model": plan.model.name,
        "customization_type": plan.the_job.customization_type.value,
        "num_steps": len(plan.steps),
        "seed": plan.request.seed or 0,
        **plan.the_job.hyperparameters,
    }
    plain = {
        name: value if isinstance(value, (bool, int, float)) else str(value)
        for name, value in values.items()
        if value is not None
    }
    masked: dict[str, str | int | float | bool] = masked_value(plain, secrets=plan.secrets)
    return masked
