"""What the command line of `arkdev test plugin` said, and how a run folder remembers it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from arkdev.errors import UsageError
from arkdev.job.hyperparameters import MAX_WHOLE_NUMBER
from arkdev.job.paths import filesystem_path, readable
from arkdev.job.ranges import range_missed


@dataclass(frozen=True)
class PluginTestRequest:
    """What the command line said; None is unset."""

    start: Path
    """Where to look for the workspace."""
    job: Path | None = None
    rollout: str | None = None
    graders: tuple[str, ...] = ()
    """``module:function`` or ``module:function=weight``."""
    data: tuple[Path, ...] = ()
    sample: str | None = None
    """Index of a dataset line, or a sample as JSON."""
    limit: int | None = None
    num_generations: int | None = None
    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_in_flight: int | None = None
    """These three over what the endpoint's definition says."""
    adaptive: bool = False
    endpoint: str | None = None
    model: str | None = None
    api_key_env: str | None = None
    skill: float | None = None
    script: Path | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    inject: str | None = None
    """Faults to inject, as `arkdev.sessions.faults.grammar` reads them."""
    success_threshold: float | None = None
    """The weighted reward from which on a rollout counts as a success in pass@k."""
    min_reward_mean: float | None = None
    """Threshold of the mean weighted reward (`harness.thresholds`)."""
    min_success_rate: float | None = None
    stall_threshold_s: float | None = None
    """How long a stall lasts at least; 0 watches for none."""
    out: Path | None = None
    faas: bool = False
    """Run the plugins in instances of the FaaS emulator."""
    faas_engine: str | None = None
    """Where instances run: ``auto``, ``container``, ``process``."""
    network: str | None = None
    """What instances reach: ``open``, ``host-only``."""
    trace: bool = False
    """Write the spans into the run folder."""
    uses_real_ark_sdk: bool = False
    resume: str | None = None
    """The run to go on with; whatever else is unset is as it was there."""
    record: Path | None = None
    """The tape to make of the run."""
    replay: Path | None = None
    """The tape to run from; whatever else is unset is as it was recorded."""

    def flags(self) -> dict[str, Any]:
        """Return what the command line set, as JSON: what `with_flags` needs to say it again."""
        flags = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name not in _NO_FLAGS and value != each.default and value != {}:
                flags[each.name] = _as_json(value)
        return flags

    def with_flags(self, flags: Mapping[str, Any]) -> PluginTestRequest:
        """Return this request with what it leaves unset taken from `flags`."""
        known = [each.name for each in fields(self) if each.name not in _NO_FLAGS]
        unset = {
            name: _from_json(name, flags[name])
            for name in known
            if name in flags and name not in self.flags()
        }
        sampling = {**flags.get("sampling", {}), **self.sampling}
        return replace(self, **{**unset, "sampling": sampling})


def check_flags(request: PluginTestRequest) -> None:
    """Raise `UsageError` for a value that cannot be, or flags that do not go together."""
    if request.record is not None and (request.resume is not None or request.inject is not None):
        raise UsageError("--record goes with a whole and undisturbed run: no --resume, no --inject")
    for flag, threshold in (
        ("--success-threshold", request.success_threshold),
        ("--min-reward-mean", request.min_reward_mean),
        ("--min-success-rate", request.min_success_rate),
    ):
        if threshold is not None and not math.isfinite(threshold):
            raise UsageError(f"{flag} is {threshold}; a finite number is expected")
    _check_counts(request)
    for name, value in request.sampling.items():
        wanted = range_missed(name, value)
        if wanted:
            raise UsageError(f"--{name.replace('_', '-')} is {value}; {wanted} is expected")


def _check_counts(request: PluginTestRequest) -> None:
    for name, flag in _COUNTS.items():
        count = getattr(request, name, None)
        if count is not None and count > MAX_WHOLE_NUMBER:
            raise UsageError(f"{flag} is {count:,}; at most {MAX_WHOLE_NUMBER:,} can be meant")


_COUNTS = {
    "num_generations": "--n-sample",
    "limit": "--limit",
    "steps": "--steps",
    "batch_size": "--batch-size",
    "validation_limit": "--validation-limit",
}
"""Field → flag; some are those of a debug run only."""
_NO_FLAGS = ("start", "out", "resume", "record", "replay", "output")
_PATHS = ("job", "data", "script", "tokenizer", "vllm_python")


def shown(path: Path) -> str:
    """Return a path as run folders have it: whole, whatever the current directory was."""
    return readable(str(path.absolute()))


def _as_json(value: Any) -> Any:
    if isinstance(value, Path):
        return shown(value)
    if isinstance(value, tuple):
        return [_as_json(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _from_json(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(name, item) for item in value)
    return filesystem_path(value) if name in _PATHS else value
