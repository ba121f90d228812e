"""What the command line of `arkdev train` said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from arkdev.errors import UsageError
from arkdev.flows.debug_request import DebugRequest
from arkdev.job.workspace import PlacedValue

DEFAULT_MODEL = "tiny"
"""The embedded model."""
VLLM = "vllm"


@dataclass(frozen=True)
class TrainRequest(DebugRequest):
    """Training of a job on this machine; None is unset. `model` is a name or a folder."""

    lr: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """``--set NAME=VALUE``."""
    engine: str | None = None
    """What samples: ``torch`` or ``vllm``."""
    vllm_python: Path | None = None
    """The Python that has vLLM."""
    policy_lag: int | None = None
    """How many updates old the weights may be that answer."""
    deterministic: bool = False
    """The same answers whatever runs beside: a resumed run equals an uninterrupted one."""
    log_to: tuple[str, ...] = ()
    """Where metrics go besides the run folder (`arkdev.observe.metric_sinks`)."""
    output: Path | None = None
    """The file that this process writes to in the background (``--detach``)."""


def check_engine(request: TrainRequest) -> None:
    """Raise `UsageError` for flags that the engine leaves without effect."""
    if request.engine == VLLM:
        if request.deterministic:
            raise UsageError(
                "--deterministic goes with --engine torch: answers of vLLM depend on what else is "
                "in a batch"
            )
    elif request.vllm_python is not None:
        raise UsageError("--vllm-python goes with --engine vllm")


def hyperparameter_flags(request: TrainRequest) -> dict[str, PlacedValue]:
    """Return the hyperparameters that the command line set, by name.

    Raises `UsageError` for one that is set twice.
    """
    named = {
        "num_steps": (request.steps, "--steps"),
        "batch_size": (request.batch_size, "--batch-size"),
        "num_generations": (request.num_generations, "--num-generations"),
        "lr": (request.lr, "--lr"),
    }
    flags = {
        name: PlacedValue(value, flag) for name, (value, flag) in named.items() if value is not None
    }
    for name, text in request.settings.items():
        if name in flags:
            raise UsageError(f"{flags[name].where} and --set {name}={text} set the same thing")
        flags[name] = PlacedValue(text, "--set")
    return flags
