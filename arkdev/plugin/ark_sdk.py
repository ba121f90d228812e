"""The import names of `ark_sdk`, served to users' existing files (SURFACE X, decision 13).

Inside arkdev's processes ``import ark_sdk…`` resolves to arkdev's own objects through an import
hook; nothing called ``ark_sdk`` is installed. A name whose behaviour is not built yet can be
imported and raises `ComesLaterError` when it is used.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from arkdev.errors import ComesLaterError
from arkdev.plugin.source import callers_place

ROOT = "ark_sdk"

_TYPES = "arkdev.types"
_DECORATORS = "arkdev.plugin.decorators"
_RUNTIME = "arkdev.plugin.runtime"
_PROXY = "arkdev.plugin.proxy"
_WRAPPING = "arkdev.plugin.wrapping"
_TRACING = "arkdev.observe.tracing"
_CLIENT_TRACING = "arkdev.plugin.client_tracing"
_JOB = "arkdev.job.models"
LATER = "later"


def _from(home: str, *names: str) -> dict[str, str]:
    return {name: f"{home}:{name}" for name in names}


def _later(what: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"{LATER}:{what}")


_DECORATOR_NAMES = _from(
    _DECORATORS, "rollout", "single_rollout", "group_rollout", "single_grader", "group_grader"
)
_PIPELINE_NAMES = _from(_JOB, "GRPOPipeline", "PPOPipeline", "OPDPipeline", "PipelinePluginWrapper")
_RUNTIME_NAMES = _from(_RUNTIME, "Runtime", "PluginInstance")
_RESULT_NAMES = _from(
    _TYPES,
    "GroupGraderResult",
    "SingleGraderResult",
    "RewardFunctionResult",
    "RolloutResult",
    "GroupRolloutResult",
    "SingleResponse",
    "PluginStatus",
    "PluginContext",
)
_SAMPLE_NAMES = {
    **_from(
        _TYPES,
        "Trajectory",
        "ChatCompletionSample",
        "ChatCompletionMessage",
        "ChatCompletionMessageToolCall",
        "ChatCompletionResponse",
        "Function",
        "Thinking",
        "CriticContext",
        "TeacherContext",
    ),
    # the older name of Trajectory in grader signatures
    "ChatCompletion": f"{_TYPES}:Trajectory",
    **_from(_PROXY, "RolloutInferenceProxy"),
}
_JOB_NAMES = _from(
    _JOB,
    "ModelReference",
    "FoundationModelReference",
    "TrainingDataset",
    "Data",
    "CustomizationType",
    "ModelCustomizationJobRLDebugConfig",
    "Tag",
    "TeacherConfig",
)
_PROXY_NAMES = {
    **_from(_PROXY, "InferenceProxy", "RolloutInferenceProxy", "Mode"),
    **_from(
        _WRAPPING,
        "wrap_client_inplace",
        "wrap_async_client_inplace",
        "wrap_responses_client_inplace",
        "wrap_responses_async_client_inplace",
    ),
}
_TRACE_NAMES = {
    **_from(_TRACING, "trace_monitor", "observe"),
    **_from(_CLIENT_TRACING, "wrap_inplace_trace"),
}
_EXCEPTION_NAMES = _from(
    "arkdev.plugin.exceptions", "RolloutRetryException", "RolloutFailedException"
)

NAMES: dict[str, dict[str, str]] = {
    "ark_sdk": {},
    "ark_sdk.core": {},
    "ark_sdk.core.client": {},
    "ark_sdk.core.client.ark": _later("the control plane", "default_ark_client"),
    "ark_sdk.core.plugin": {},
    "ark_sdk.core.plugin.rollout": {**_EXCEPTION_NAMES, **_PROXY_NAMES},
    "ark_sdk.core.plugin.rollout.proxy": {**_PROXY_NAMES, **_EXCEPTION_NAMES},
    "ark_sdk.core.plugin.rollout.trace": {
        **_from(_TRACING, "coze_monitor"),
        **_from(_CLIENT_TRACING, "wrap_inplace_trace"),
        # the older names of wrap_inplace_trace
        "wrap_client_inplace_trace": f"{_CLIENT_TRACING}:wrap_inplace_trace",
        "wrap_async_client_inplace_trace": f"{_CLIENT_TRACING}:wrap_inplace_trace",
    },
    "ark_sdk.core.trace": _TRACE_NAMES,
    "ark_sdk.resources": {},
    "ark_sdk.resources.model_customization_job": _from(_JOB, "ModelCustomizationJob"),
    "ark_sdk.resources.pipeline_plugin": {**_DECORATOR_NAMES, **_PIPELINE_NAMES},
    "ark_sdk.resources.pipeline_plugin.pipeline_plugin": {**_DECORATOR_NAMES, **_PIPELINE_NAMES},
    "ark_sdk.resources.pipeline_plugin.test_instance": _from(
        "arkdev.plugin.test_instance", "get_or_create_pipeline_plugin_test_instance"
    ),
    "ark_sdk.types": {},
    "ark_sdk.types.foundation_model": {},
    "ark_sdk.types.foundation_model.foundation_model": _later(
        "the control plane", "ListFoundationModelVersionsRequest"
    ),
    "ark_sdk.types.model_customization_job": _JOB_NAMES,
    "ark_sdk.types.model_customization_job.model_customization_job": _JOB_NAMES,
    "ark_sdk.types.pipeline_plugin": {**_RUNTIME_NAMES, **_RESULT_NAMES, **_EXCEPTION_NAMES},
    "ark_sdk.types.pipeline_plugin.pipeline_plugin": {**_RUNTIME_NAMES, **_RESULT_NAMES},
    "ark_sdk.types.pipeline_plugin.rollout": {
        **_SAMPLE_NAMES,
        **_RESULT_NAMES,
        **_EXCEPTION_NAMES,
    },
}
"""Module → exported name → "home module:attribute", or "later:what it waits for"."""


class _Later:
    """Stands for a name whose behaviour is not built yet."""

    def __init__(self, name: str, what: str) -> None:
        self._name = name
        self._what = what

    def __repr__(self) -> str:
        return f"<{self._name}: not built yet>"

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise ComesLaterError(
            f"{self._name} is not built yet: it comes with {self._what}",
            where=callers_place(),
        )


class _ArkModule(ModuleType):
    """One module of the table; its names are looked up when they are first used."""

    def __getattr__(self, name: str) -> Any:
        target = NAMES[self.__name__].get(name)
        if target is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        home, _, attribute = target.partition(":")
        if home == LATER:
            value: Any = _Later(name, attribute)
        else:
            value = getattr(import_module(home), attribute)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *NAMES[self.__name__]})


class _ArkFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and makes the modules of the table."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a module of the table."""
        if fullname not in NAMES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Make the module; `from module import *` sees its table."""
        module = _ArkModule(spec.name)
        module.__all__ = sorted(NAMES[spec.name])  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def install() -> None:
    """Let ``import ark_sdk`` resolve to arkdev in this process. Idempotent."""
    if any(isinstance(finder, _ArkFinder) for finder in sys.meta_path):
        return
    for name in [name for name in sys.modules if name.partition(".")[0] == ROOT]:
        del sys.modules[name]
    sys.meta_path.insert(0, _ArkFinder())


def uninstall() -> None:
    """Let ``import ark_sdk`` find the installed package again (``--real-ark-sdk``)."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _ArkFinder)]
    for name in [name for name in sys.modules if name.partition(".")[0] == ROOT]:
        del sys.modules[name]


def installed_namesake() -> str | None:
    """Describe the distribution on this machine that owns an `ark_sdk` of its own, if any.

    A registry's `ark-sdk` is an unrelated product with the same import name; the real one is
    distributed as an archive.
    """
    if importlib.machinery.PathFinder.find_spec(ROOT) is None:
        return None
    try:
        found = version("ark-sdk")
    except PackageNotFoundError:
        return "an ark_sdk package that no distribution owns"
    is_real = importlib.machinery.PathFinder.find_spec(
        "resources",
        list(importlib.machinery.PathFinder.find_spec(ROOT).submodule_search_locations or []),  # type: ignore[union-attr]
    )
    kind = "the fine-tuning SDK" if is_real else "an unrelated product of that name"
    return f"ark-sdk {found}, {kind}"
