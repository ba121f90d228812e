"""What a plugin author imports: decorators, records and the proxy. Loaded lazily, nothing else."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "arkdev.plugin.decorators": (
        "rollout",
        "single_rollout",
        "group_rollout",
        "single_grader",
        "group_grader",
    ),
    "arkdev.plugin.runtime": ("Runtime", "PluginInstance"),
    "arkdev.plugin.proxy": ("InferenceProxy", "RolloutInferenceProxy", "Mode"),
    "arkdev.plugin.wrapping": (
        "wrap_client_inplace",
        "wrap_async_client_inplace",
        "wrap_responses_client_inplace",
        "wrap_responses_async_client_inplace",
    ),
    "arkdev.plugin.exceptions": ("RolloutRetryException",),
    "arkdev.types": (
        "ChatCompletionMessage",
        "ChatCompletionResponse",
        "ChatCompletionSample",
        "GroupGraderResult",
        "GroupRolloutResult",
        "PluginContext",
        "PluginStatus",
        "RewardFunctionResult",
        "RolloutResult",
        "SingleGraderResult",
        "SingleResponse",
        "Trajectory",
    ),
    # `observe` is left out: it would be hidden by the package arkdev.observe
    "arkdev.observe.tracing": ("trace_monitor",),
    "arkdev.plugin.client_tracing": ("wrap_inplace_trace",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*sorted(_HOME_OF), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'arkdev' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
