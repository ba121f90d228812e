"""The JSON document of `arkdev faas plan`, as types."""

from __future__ import annotations

from typing_extensions import TypedDict

from arkdev.faas_emulator.capacity.forecast import Estimate, Forecast
from arkdev.faas_emulator.capacity.memory import MemoryFit
from arkdev.faas_emulator.capacity.search import Target
from arkdev.flows.faas_capacity import ClosedForm


class BatchLoad(TypedDict):
    """The rollouts of one step of a job."""

    kind: str
    """``batch``"""
    batch_size: int
    num_generations: int
    in_flight: int


class PoissonLoad(TypedDict):
    """Calls that come at random."""

    kind: str
    """``poisson``"""
    rate: float
    """Calls per second at each function."""


class ServiceRow(TypedDict):
    """What was fitted of the calls of a function."""

    num_calls: int
    mean_alone_s: float
    """With nothing else in its instance."""
    cpu_share: float
    """Of that, what it computes."""
    cpu_share_range: list[float]
    is_told: bool
    """False: nothing measured tells it, and 0 is taken."""
    evidence: str
    max_concurrent: int
    """Calls in one instance at once, as measured."""


class SettingRow(TypedDict):
    """One setting, and what to expect of it."""

    instance: str
    max_concurrency: int
    min_replicas: int
    max_replicas: int
    meets_target: bool
    is_chosen: bool
    is_today: bool
    marks: list[str]
    core_hours: Estimate
    """Of a batch, or of an hour."""
    cost: float | None
    """With ``--price-core-hour``."""
    makespan: Estimate | None
    forecast: Forecast


class FunctionPlanRow(TypedDict):
    """The answer for one function."""

    name: str
    kind: str
    runtime: str | None
    """Ready to paste; None: no setting meets the target."""
    why_none: str
    target_p99_s: float | None
    best_p99_s: float
    """Of calls that never wait, alone in their instance."""
    service: ServiceRow
    memory: MemoryFit | None
    closed_form: ClosedForm | None
    settings: list[SettingRow]


class CapacityDocument(TypedDict):
    """``arkdev faas plan --json``."""

    schema_version: int
    run: str
    load: BatchLoad | PoissonLoad
    origins: dict[str, str]
    """Where each number of the load comes from."""
    target: Target
    functions: list[FunctionPlanRow]
    makespan: Estimate | None
    """Of a batch until all is graded, with what was chosen."""
    makespan_today: Estimate | None
    notes: list[str]
