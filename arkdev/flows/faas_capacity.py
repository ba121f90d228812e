"""`arkdev faas plan`: what a job needs of its functions, from a run that measured them.

::

    run folder ─► measured_functions ─► fits ─► Planner ─► CapacityAnswer
                                        (flags, job, run: the batch and the target)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from arkdev.endpoints.registry import LOCAL
from arkdev.errors import RunError, UsageError
from arkdev.faas_emulator.capacity import queueing
from arkdev.faas_emulator.capacity.fitting import ServiceFit, fit_service
from arkdev.faas_emulator.capacity.forecast import Arrivals, Job, JobForecast, Load
from arkdev.faas_emulator.capacity.loads import Batch
from arkdev.faas_emulator.capacity.measured import (
    MeasuredCall,
    MeasuredFunction,
    MeasuredInstance,
)
from arkdev.faas_emulator.capacity.memory import MemoryFit, fit_memory
from arkdev.faas_emulator.capacity.search import FunctionPlan, Planner, Target
from arkdev.faas_emulator.records import InvocationStatus
from arkdev.harness.functions_report import FUNCTION_EVENT
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import PluginInstance, Runtime
from arkdev.runs.function_records import FunctionCallRecord
from arkdev.runs.reader import RunReader

_USED_AN_INSTANCE = (InvocationStatus.OK, InvocationStatus.TIMEOUT)
_FEW_CALLS = 100
"""A p99 of fewer calls rests on the largest of them."""
_HARDLY_SLOWER = 1.1
"""A closed form knows of no company: it holds where full instances are at most so much slower."""
_MAX_BATCH_CALLS = 100_000


@dataclass(frozen=True)
class CapacityRequest:
    """What is asked. None: as the job or the run has it."""

    batch_size: int | None = None
    num_generations: int | None = None
    in_flight: int | None = None
    rate: float | None = None
    """Calls per second of a Poisson load, in place of a batch."""
    target: Target = field(default_factory=Target)
    instance: PluginInstance | None = None
    function: str = ""
    """Only this one."""


@dataclass(frozen=True)
class JobNumbers:
    """What a job file says of batches."""

    where: str
    batch_size: int | None
    num_generations: int | None


@dataclass(frozen=True)
class ClosedForm:
    """The chosen setting of a Poisson load in closed form, beside its simulation."""

    utilisation: float
    mmc_mean_wait_s: float
    mmc_p99_wait_s: float
    mgc_mean_wait_s: float
    simulated_mean_wait_s: float


@dataclass(frozen=True)
class CapacityAnswer:
    """What the job needs."""

    load: Load
    origins: Mapping[str, str]
    """Where each number of the load comes from."""
    target: Target
    fits: Mapping[str, ServiceFit]
    memory: Mapping[str, MemoryFit | None]
    plans: Mapping[str, FunctionPlan]
    together_chosen: JobForecast | None
    """All functions as chosen; None where one has no setting, and for a Poisson load."""
    together_today: JobForecast | None
    closed_forms: Mapping[str, ClosedForm]
    """Of a Poisson load, where calls in an instance hardly hold each other up."""
    notes: tuple[str, ...]


def plan_capacity(
    reader: RunReader, request: CapacityRequest, *, job: JobNumbers | None
) -> CapacityAnswer:
    """Answer from a run with ``--faas``.

    Raises `RunError` for a run that measured nothing, `UsageError` for what it has not.
    """
    functions = measured_functions(reader)
    if request.function:
        functions = {request.function: _named(functions, request.function)}
    fits = {name: fit_service(function) for name, function in functions.items()}
    memory = {name: fit_memory(function) for name, function in functions.items()}
    load, origins = load_of(reader, request, functions=functions, job=job)
    has_rollout = any(function.kind.is_rollout for function in functions.values())
    platform = () if has_rollout else tuple(t.duration_s for t in reader.trajectories())
    planned = Planner(
        Job(fits, load, platform),
        memory,
        request.target,
        only_size=request.instance,
    )
    plans = planned.plan()
    is_batch = isinstance(load, Batch)
    is_met = all(plan.chosen is not None for plan in plans.values())
    return CapacityAnswer(
        load=load,
        origins=origins,
        target=request.target,
        fits=fits,
        memory=memory,
        plans=plans,
        together_chosen=planned.forecast(planned.chosen) if is_batch and is_met else None,
        together_today=planned.forecast(planned.today()) if is_batch else None,
        closed_forms=dict(_closed_forms(load, fits, plans)),
        notes=tuple(_notes(reader, functions, platform if is_batch else ())),
    )


def _closed_forms(
    load: Load, fits: Mapping[str, ServiceFit], plans: Mapping[str, FunctionPlan]
) -> Iterator[tuple[str, ClosedForm]]:
    for name, plan in plans.items():
        model, row = fits[name].model, plan.chosen
        if not isinstance(load, Arrivals) or row is None:
            continue
        if model.slowdown.at(row.runtime.max_concurrency) > _HARDLY_SLOWER:
            continue
        places = row.runtime.max_concurrency * (row.runtime.max_replicas or 1)
        at = queueing.Load(load.rate, model.mean_s, places)
        if at.is_stable:
            yield (
                name,
                ClosedForm(
                    utilisation=at.utilisation,
                    mmc_mean_wait_s=queueing.mmc_mean_wait(at),
                    mmc_p99_wait_s=queueing.mmc_wait_quantile(at, 0.99),
                    mgc_mean_wait_s=queueing.mgc_mean_wait(
                        at, squared_variation=model.squared_variation
                    ),
                    simulated_mean_wait_s=row.forecast.queued_mean.value,
                ),
            )


def _named(functions: Mapping[str, MeasuredFunction], name: str) -> MeasuredFunction:
    if name not in functions:
        raise UsageError(f"the run has no function {name!r}", hint=f"it has {', '.join(functions)}")
    return functions[name]


def measured_functions(reader: RunReader) -> dict[str, MeasuredFunction]:
    """Return what a run measured of its functions, by name, those without a call left out.

    Raises `RunError` for a run that has none.
    """
    limits = {
        str(event["name"]): event
        for event in reader.events()
        if event.get("kind") == FUNCTION_EVENT and "runtime" in event
    }
    if not limits:
        raise RunError(
            f"the run {reader.folder.name} measured no functions",
            hint="run the plugins in instances first: arkdev test plugin --faas",
        )
    calls = defaultdict(list)
    for call in reader.invocations():
        if call.instance_id and call.status in _USED_AN_INSTANCE:
            calls[call.function].append(_measured(call))
    instances = defaultdict(list)
    for one in reader.instances():
        measured = MeasuredInstance(one.instance_id, one.ready_s, one.memory_peak_mb, one.cpu_s)
        instances[one.function].append(measured)
    if not calls:
        raise RunError(f"no call of the run {reader.folder.name} was answered by an instance")
    return {
        name: _function(event, calls[name], instances[name])
        for name, event in limits.items()
        if calls[name]
    }


def _measured(call: FunctionCallRecord) -> MeasuredCall:
    return MeasuredCall(
        begun_s=datetime.fromisoformat(call.at).timestamp() + call.queued_s,
        service_s=call.service_s,
        instance_id=call.instance_id,
        is_retry=bool(call.attempt),
        is_timeout=call.status == InvocationStatus.TIMEOUT,
    )


def _function(
    event: Mapping[str, Any],
    calls: Sequence[MeasuredCall],
    instances: Sequence[MeasuredInstance],
) -> MeasuredFunction:
    return MeasuredFunction(
        name=event["name"],
        kind=PluginKind(event["plugin_kind"]),
        runtime=Runtime(**event["runtime"]),
        min_replicas=event["min_replicas"],
        max_replicas=event["max_replicas"],
        timeout_s=event["timeout_s"],
        enforced_cpus=event["enforced_cpus"],
        calls=tuple(sorted(calls, key=lambda call: call.begun_s)),
        instances=tuple(instances),
    )


def load_of(
    reader: RunReader,
    request: CapacityRequest,
    *,
    functions: Mapping[str, MeasuredFunction],
    job: JobNumbers | None,
) -> tuple[Load, dict[str, str]]:
    """Return what is planned for, and where each number of it comes from."""
    if request.rate is not None:
        return Arrivals(request.rate), {"rate": "--rate"}
    settings = reader.manifest.settings
    origins: dict[str, str] = {}

    def first(name: str, sources: Sequence[tuple[str, int | None]]) -> int:
        origins[name], value = next((w, v) for w, v in sources if v is not None)
        assert value is not None
        return value

    of_job = job or JobNumbers("", None, None)
    batch_size = first(
        "batch_size",
        [
            ("--batch-size", request.batch_size),
            (of_job.where, of_job.batch_size),
            ("the run", settings.get("batch_size")),
            ("the run's rollouts at once", settings["concurrency"]),
        ],
    )
    num_generations = first(
        "num_generations",
        [
            ("--num-generations", request.num_generations),
            (of_job.where, of_job.num_generations),
            ("the run", settings["num_generations"]),
        ],
    )
    if batch_size * num_generations > _MAX_BATCH_CALLS:
        raise UsageError(
            f"{batch_size} x {num_generations} rollouts are more than {_MAX_BATCH_CALLS:,}",
            hint="plan for one batch",
        )
    limits = [
        function.runtime.request_concurrency
        for function in functions.values()
        if function.kind.is_rollout
    ]
    least = min(limits, default=batch_size)
    in_flight = first(
        "in_flight",
        [
            ("--in-flight", request.in_flight),
            ("request_concurrency", least if least < batch_size else None),
            ("the batch size, as in a run", batch_size),
        ],
    )
    return Batch(batch_size, num_generations, in_flight), origins


def _notes(
    reader: RunReader, functions: Mapping[str, MeasuredFunction], platform: Sequence[float]
) -> list[str]:
    """Say what the numbers rest on, and what they leave out."""
    notes = []
    endpoint = reader.manifest.settings.get("endpoint") or {}
    if not endpoint.get("base_url") and endpoint.get("name") != LOCAL.name:
        notes.append(
            "measured on the scripted model, which answers at once: with a real model a rollout "
            "takes longer; measure with --endpoint"
        )
    else:
        notes.append(
            f"the model at {endpoint['name']!r} is taken to answer as fast as in the run, however "
            "many rollouts ask it"
        )
    for function in functions.values():
        notes += _notes_on(function)
    if platform:
        notes.append("rollouts are taken to take as long as in the run")
    return notes


def _notes_on(function: MeasuredFunction) -> list[str]:
    notes, num_calls = [], len(function.calls)
    if num_calls < _FEW_CALLS:
        notes.append(
            f"{function.name}: {num_calls} calls were measured; a p99 of so few is hardly more "
            "than the largest"
        )
    num_timeouts = sum(call.is_timeout for call in function.calls)
    if num_timeouts:
        notes.append(
            f"{function.name}: {num_timeouts} calls were given up after {function.timeout_s:g} s; "
            "how long they would have taken is not known, so tails are longer than told"
        )
    asked = float(function.runtime.instance.value[3:].partition("mem")[0])
    if function.enforced_cpus is not None and function.enforced_cpus < asked:
        notes.append(
            f"{function.name}: measured on {function.enforced_cpus:g} cores of the {asked:g} that "
            f"{function.runtime.instance.name} has"
        )
    return notes


def paste_text(runtime: Runtime) -> str:
    """Return a `Runtime` as it is written in a plugin."""
    texts: dict[str, Callable[[Any], str]] = {"instance": lambda v: f"PluginInstance.{v.name}"}
    default = Runtime()
    given = {
        name: value
        for name in Runtime.model_fields
        if (value := getattr(runtime, name)) != getattr(default, name)
        or name in ("instance", "max_concurrency")
    }
    return f"Runtime({', '.join(f'{n}={texts.get(n, repr)(v)}' for n, v in given.items())})"
