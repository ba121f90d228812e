"""``--endpoint local``: which model answers, and how it is opened in this process."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from arkdev.backends.local.model_files import TINY, ModelFiles, newest_trained, resolve_model
from arkdev.backends.local.packages import require_packages
from arkdev.endpoints.spec import EndpointSpec

_FAMILY = "local"


@dataclass(frozen=True, kw_only=True)
class PolicySpec(EndpointSpec):
    """The endpoint ``local`` with its model."""

    files: ModelFiles


def choose_policy(spec: EndpointSpec, *, runs: Path) -> tuple[EndpointSpec, tuple[str, ...]]:
    """Return `spec` with the model that answers, and a note on which it is.

    Without a model it is the newest finished training run in `runs`, else ``tiny``. An endpoint
    that is another one is returned as it is. Raises `MissingExtraError`, and what `resolve_model`
    raises.
    """
    if spec.family != _FAMILY:
        return spec, ()
    require_packages(purpose="a model that answers in this process")
    name = spec.model or newest_trained(runs) or TINY
    files = resolve_model(name, runs=runs, takes_adapter=True)
    chosen = "" if spec.model else ", since no --model names another"
    given = {field.name: getattr(spec, field.name) for field in fields(EndpointSpec)}
    return PolicySpec(**{**given, "model": files.name}, files=files), (
        f"{files.source} answers{chosen}",
    )


def load_policy(spec: PolicySpec, **settings: Any) -> Any:
    """Load the model, which takes seconds, and blocks.

    `settings` are those of `arkdev.backends.local.loading.LoadingSettings`; returns its
    `LoadedPolicy`.
    """
    loading: Any = import_module("arkdev.backends.local.loading")
    return loading.load_policy(spec.files, loading.LoadingSettings(**settings))
