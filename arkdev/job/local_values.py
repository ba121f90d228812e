"""The hyperparameters of training on this machine: the job's, and what stands in their place here.

A job is written for the platform's model; a small model on a laptop wants another learning rate,
other sizes, fewer tokens. So each value comes from the first of these that gives it:

1. the command line (``--lr``, ``--steps``, ``--set NAME=VALUE``, ...),
2. the table ``[train.local]`` of arkworkspace.toml,
3. the job,
4. a default, the platform's where it is known.

Which one it is, and what the job says instead, is kept with the value: the plan shows both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from arkdev.errors import JobError, UsageError
from arkdev.job.catalogue import Hyperparameter, catalogue, entries_of, local_settings
from arkdev.job.hyperparameters import check_value_of
from arkdev.job.job import Job
from arkdev.job.problems import Problem, make_error
from arkdev.job.spelling import unknown_name
from arkdev.job.workspace import PlacedValue, Workspace

TABLE = "[train.local]"

OWN_DEFAULTS: Mapping[str, object] = {
    "batch_size": 32,
    "num_generations": 8,
    "num_iterations_per_batch": 1,
    "lr": 1e-6,
    "lr_warmup_steps": 0,
    "clip_ratio_high": 0.2,
    "clip_ratio_low": 0.2,
    "kl_coefficient": 0.0,
    "loss_agg_mode": "token-mean",
    "test_num_generations": 1,
    "lora_rank": 16,
    "lora_alpha": 32.0,
}
"""What this machine takes for hyperparameters whose default on the platform is not known. Those of
the update are `arkdev.backends.local.settings.UpdateSettings`'s."""


@dataclass(frozen=True)
class Switch:
    """A setting with a value that leaves others without effect."""

    name: str
    off: object
    names: tuple[str, ...]
    """Those that have no effect then."""
    instead: str

    @property
    def reason(self) -> str:
        """``kl_coefficient is 0``."""
        return f"{self.name} is {self.off}"


SWITCHES = (
    Switch("kl_coefficient", 0, ("kl_estimator", "kl_place"), "set kl_coefficient above 0"),
    Switch(
        "correction", "none", ("correction_cap", "correction_floor"), "choose truncated or masked"
    ),
    Switch(
        "num_iterations_per_batch",
        1,
        ("policy_loss", "clip_ratio_low", "clip_ratio_high"),
        "set num_iterations_per_batch to 2 or more",
    ),
)
"""With one update of each batch the ratio of the policy to what it was at the step's beginning is 1
(`arkdev.backends.local.update`): nothing is clipped, and all losses have the same gradient."""


@dataclass(frozen=True)
class LocalValue:
    """A value that is not the job's own."""

    name: str
    value: object
    where: str
    """A flag, or file:line."""
    is_flag: bool
    in_job: object | None
    """What the job says; None: nothing."""

    @property
    def place(self) -> str:
        """Where it stands, in words."""
        return self.where if self.is_flag else f"{self.where} {TABLE}"

    def __str__(self) -> str:
        """``lr is 0.0005 here (arkworkspace.toml:12 [train.local]), 1e-06 in the job``."""
        told = f"{self.name} is {_shown(self.value)} here ({self.place})"
        if self.in_job is None:
            return f"{told}; the job gives none"
        return f"{told}, {_shown(self.in_job)} in the job"


@dataclass(frozen=True)
class LocalJob:
    """A job as it is trained on this machine."""

    job: Job
    """With the values of this machine; settings that no job file has are among its
    hyperparameters."""
    values: Mapping[str, LocalValue]
    """Those that are not the job's own, by name."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what stands in the place of something that the job says."""
        return tuple(
            str(value)
            for value in self.values.values()
            if value.in_job is not None and value.in_job != value.value
        )


def local_job(job: Job, workspace: Workspace, *, flags: Mapping[str, PlacedValue]) -> LocalJob:
    """Return `job` with the values of this machine.

    `flags` are by the hyperparameter's name, each with the flag as its place. Raises `JobError` for
    a name or a value of the table that cannot be, `UsageError` for one of a flag.
    """
    known = known_settings(job)
    table, wrong = _checked(workspace.train_local, known=known, job=job)
    if wrong:
        raise make_error(JobError, wrong)
    given, wrong = _checked(flags, known=known, job=job)
    if wrong:
        raise make_error(UsageError, wrong)
    values = {
        name: LocalValue(
            name,
            placed.value,
            placed.where,
            is_flag=name in given,
            in_job=job.hyperparameters.get(name),
        )
        for name, placed in {**table, **given}.items()
    }
    merged = {**job.hyperparameters, **{name: one.value for name, one in values.items()}}
    batch_size, generations = merged.get("batch_size"), merged.get("num_generations")
    changed = replace(
        job,
        hyperparameters=merged,
        batch_size=batch_size if isinstance(batch_size, int) else None,
        num_generations=generations if isinstance(generations, int) else None,
    )
    return LocalJob(changed, values)


def known_settings(job: Job) -> Mapping[str, Hyperparameter]:
    """Return what can be set for training of `job` on this machine, by name."""
    own = {name: e for name, e in local_settings().items() if job.customization_type in e.methods}
    return {**{entry.name: entry for entry in entries_of(job.customization_type)}, **own}


def own_defaults(local: LocalJob) -> Iterator[tuple[Hyperparameter, object, str]]:
    """Yield each setting that nobody gives, its value on this machine, and whose default it is."""
    for name, entry in known_settings(local.job).items():
        if name in local.job.hyperparameters:
            continue
        if name in local_settings():
            yield entry, entry.default, entry.sources[0]
        elif name in OWN_DEFAULTS:
            yield entry, OWN_DEFAULTS[name], "arkdev"


def switched_off(local: LocalJob) -> Mapping[str, Switch]:
    """Return the settings that have no effect, each with what switches it off."""
    found: dict[str, Switch] = {}
    for switch in SWITCHES:
        value = local.job.hyperparameters.get(switch.name, _default(switch.name))
        if value == switch.off:
            found |= dict.fromkeys(switch.names, switch)
    return found


def _default(name: str) -> object:
    return OWN_DEFAULTS[name] if name in OWN_DEFAULTS else local_settings()[name].default


def _checked(
    values: Mapping[str, PlacedValue], *, known: Mapping[str, Hyperparameter], job: Job
) -> tuple[dict[str, PlacedValue], list[Problem]]:
    checked: dict[str, PlacedValue] = {}
    problems = list(_unknown(values, known=known, job=job))
    for name, placed in values.items():
        if name in known:
            try:
                checked[name] = replace(placed, value=check_value_of(known[name], placed.value))
            except ValueError as error:
                problems.append(Problem(placed.where, f"{name}: {error}"))
    return checked, problems


def _unknown(
    values: Mapping[str, PlacedValue], *, known: Mapping[str, Hyperparameter], job: Job
) -> Iterator[Problem]:
    for name, placed in values.items():
        if name in known:
            continue
        entry = catalogue().get(name) or local_settings().get(name)
        if entry is None:
            message = unknown_name("hyperparameter", name, known=known)
        else:
            message = (
                f"{name}: {job.customization_type} does not take it ({', '.join(entry.methods)} do)"
            )
        yield Problem(placed.where, message)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
