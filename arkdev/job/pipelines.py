"""RL pipelines and the plugins in them (SURFACE PIPE, JOB-41..51, X-20, X-21, Y-24, Y-25)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    FiniteFloat,
    field_validator,
    model_validator,
)

from arkdev.errors import ConfigurationError
from arkdev.job.model import (
    NO_CHARACTER,
    JobModel,
    NoBoolean,
    is_encodable,
    located_errors,
)
from arkdev.job.problems import KeyPath
from arkdev.job.references import TeacherConfig
from arkdev.plugin.runtime import Runtime

_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def check_reference(text: str) -> str:
    """Return `text` when it is of the form ``module:function``, else raise ValueError."""
    if _REFERENCE.fullmatch(text):
        return text
    module, _, function = text.partition(":")
    guess = module.removeprefix("./").removesuffix(".py").replace("/", ".")
    guess = f"{guess}:{function}" if function else ":".join(guess.rsplit(".", 1))
    advice = f"; did you mean {guess!r}?" if _REFERENCE.fullmatch(guess) else ""
    raise ValueError(f"{text!r} is not of the form module:function{advice}")


def _environment(value: Any) -> Any:
    """Refuse values that are no text; the environment of a process holds nothing else."""
    if not isinstance(value, dict):
        return {} if value is None else value
    problems = {str(name): _env_problem(str(name), item) for name, item in value.items()}
    problems = {name: problem for name, problem in problems.items() if problem}
    if problems:
        raise located_errors(problems)
    return value


def _env_problem(name: str, value: object) -> str:
    if not isinstance(value, str):
        given = "nothing" if value is None else type(value).__name__
        return f"{given} given; write the value in quotes"
    if not name or "=" in name or "\0" in name:
        return "no environment can hold this name: it is empty, or has an = or a NUL in it"
    if not is_encodable(name + value):
        return NO_CHARACTER
    return "no environment can hold a NUL, and the value has one" if "\0" in value else ""


Weight = Annotated[FiniteFloat, NoBoolean]
Environment = Annotated[dict[str, str], BeforeValidator(_environment)]


class PluginRuntime(JobModel):
    """The part of a plugin's runtime that a job.yaml may set (X-20); None where it does not."""

    instance: str | None = None
    timeout: FiniteFloat | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    max_concurrency: int | None = None
    request_concurrency: int | None = None

    @model_validator(mode="after")
    def _within_the_limits(self) -> PluginRuntime:
        """The limits are those of the decorator's `Runtime`."""
        try:
            Runtime(**self.model_dump(exclude_none=True))
        except ConfigurationError as error:
            raise ValueError(error.message) from None
        return self


class PluginSpec(JobModel):
    """A plugin by its import path, as YAML writes it (JOB-41..45)."""

    name: str | None = None
    description: str | None = None
    python_func: str
    envs: Environment = Field(default_factory=dict, repr=False)
    weight: Weight | None = None
    runtime: PluginRuntime | None = None

    @field_validator("python_func")
    @classmethod
    def _is_reference(cls, value: str) -> str:
        return check_reference(value)


def _plugin(value: Any) -> Any:
    if isinstance(value, str):
        return check_reference(value)
    if isinstance(value, dict | PluginSpec):
        return PluginSpec.model_validate(value)
    if callable(value):
        return value
    raise ValueError("a decorated function or 'module:function' is expected")


class PipelinePluginWrapper(JobModel):
    """A plugin with its environment and weight (X-21).

    `plugin` is a decorated function, ``module:function`` or a `PluginSpec`. Where `envs` or
    `weight` stand inside of the plugin and here, they must not contradict each other.
    """

    plugin: Annotated[Any, BeforeValidator(_plugin)]
    envs: Environment = Field(default_factory=dict, repr=False)
    weight: Weight | None = None

    @model_validator(mode="before")
    @classmethod
    def _bare_plugin(cls, value: Any) -> Any:
        is_wrapped = isinstance(value, (dict, PipelinePluginWrapper))
        return value if is_wrapped or value is None else {"plugin": value}

    @model_validator(mode="after")
    def _levels_agree(self) -> PipelinePluginWrapper:
        spec = self.plugin
        if not isinstance(spec, PluginSpec):
            return self
        for name in self.envs.keys() & spec.envs.keys():
            if self.envs[name] != spec.envs[name]:
                raise ValueError(f"envs has two values for {name}, beside and inside of plugin")
        if None not in (self.weight, spec.weight) and self.weight != spec.weight:
            raise ValueError(f"two weights, {self.weight} and {spec.weight}")
        return self

    @property
    def function(self) -> str | Callable[..., Any]:
        """``module:function``, or the decorated function itself."""
        function: str | Callable[..., Any] = (
            self.plugin.python_func if isinstance(self.plugin, PluginSpec) else self.plugin
        )
        return function

    @property
    def given_name(self) -> str | None:
        """The name that the job gives the plugin, or None."""
        return self.plugin.name if isinstance(self.plugin, PluginSpec) else None

    @property
    def environment(self) -> dict[str, str]:
        """The variables of both levels."""
        return {**(self.plugin.envs if isinstance(self.plugin, PluginSpec) else {}), **self.envs}

    @property
    def reward_weight(self) -> float | None:
        """The weight of either level, or None when there is none."""
        if self.weight is None and isinstance(self.plugin, PluginSpec):
            return self.plugin.weight
        return self.weight

    @property
    def runtime(self) -> dict[str, object]:
        """What the job sets of the plugin's runtime; it goes before the decorator's."""
        if not isinstance(self.plugin, PluginSpec) or self.plugin.runtime is None:
            return {}
        return self.plugin.runtime.model_dump(exclude_none=True)


def _single_rollout(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        raise ValueError("only one rollout is allowed, and it is not a list")
    return value


def _unweighed(rollout: PipelinePluginWrapper | None) -> PipelinePluginWrapper | None:
    """Refuse a weight that would do nothing; public job files write the 1 of X-20."""
    if rollout is not None and rollout.reward_weight not in (None, 1.0):
        raise ValueError("a rollout has no weight; weight belongs to a grader")
    return rollout


def _grader_list(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and not value:
        raise ValueError("at least one grader is needed")
    if value is None or not isinstance(value, (list, tuple)):
        raise ValueError("a list with at least one grader is needed")
    return list(value)


class Pipeline(JobModel):
    """At most one rollout and at least one grader (PIPE-08, PIPE-09).

    No rollout means the built-in single-turn one (CT-11).
    """

    pipeline_type: str
    rollout: Annotated[
        PipelinePluginWrapper | None, BeforeValidator(_single_rollout), AfterValidator(_unweighed)
    ] = None
    graders: Annotated[list[PipelinePluginWrapper], BeforeValidator(_grader_list)]

    @field_validator("graders")
    @classmethod
    def _some_weight(cls, graders: list[PipelinePluginWrapper]) -> list[PipelinePluginWrapper]:
        """Without a reward nothing is learned, but for the teacher's signal in OPD (OPD-05)."""
        if cls is not OPDPipeline and all(grader.reward_weight == 0 for grader in graders):
            raise ValueError("every grader has weight 0, so there is no final reward")
        if not math.isfinite(sum(abs(grader.reward_weight or 0) for grader in graders)):
            raise ValueError("the weights of the graders add up to more than the largest float")
        return graders


class GRPOPipeline(Pipeline):
    """The pipeline of GRPO and GRPOLoRA (PIPE-01)."""

    pipeline_type: Literal["GRPOPipeline"] = "GRPOPipeline"


class PPOPipeline(Pipeline):
    """The pipeline of PPO (PIPE-02)."""

    pipeline_type: Literal["PPOPipeline"] = "PPOPipeline"


class OPDPipeline(Pipeline):
    """The pipeline of OPD and OPDLoRA, with the teachers by name (PIPE-03)."""

    pipeline_type: Literal["OPDPipeline"] = "OPDPipeline"
    teachers: dict[str, TeacherConfig] = Field(default_factory=dict)

    @classmethod
    def conflicts(cls, given: Mapping[str, Any]) -> dict[KeyPath, str]:
        """Without a teacher there is nothing to distil."""
        missing: dict[KeyPath, str] = {
            ("teachers",): "at least one is needed: a name and its model"
        }
        return super().conflicts(given) | ({} if given.get("teachers") else missing)
