"""A plugin as it is deployed: one cloud function, with its limits and its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.loading import LoadedPlugin
from arkdev.plugin.runtime import MAX_TIMEOUT_S, Runtime
from arkdev.runs.masking import secret_values

DEFAULT_MAX_REPLICAS = 10
"""Instances of a function whose `Runtime` sets no `max_replicas`: the documents' own (DEC-17)."""


@dataclass(frozen=True)
class FunctionSpec:
    """One plugin as a cloud function."""

    name: str
    """The job's name for the plugin, else the plugin's own; unique in a deployment."""
    reference: str
    """``module:function`` from the workspace's root."""
    root: Path
    """The workspace."""
    kind: PluginKind
    runtime: Runtime
    place: str
    """file:line of the plugin, for errors."""
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The declared variables: all that the function is given; the host's own are absent."""

    @property
    def num_cpus(self) -> int:
        """CPU cores of one instance (DEC-12)."""
        return int(self.runtime.instance.value[3:].partition("mem")[0])

    @property
    def memory_mb(self) -> int:
        """Memory of one instance in MiB (DEC-12)."""
        return 1024 * int(self.runtime.instance.value.partition("mem")[2])

    @property
    def timeout_s(self) -> float:
        """Seconds that one call may take, from the moment an instance takes it (DEC-13)."""
        return self.runtime.timeout or MAX_TIMEOUT_S

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that it is given and that nobody else is to read."""
        return secret_values(self.envs)

    @property
    def min_replicas(self) -> int:
        """Instances that are kept warm."""
        return self.runtime.min_replicas or 0

    @property
    def max_replicas(self) -> int:
        """Instances that there are at most."""
        return self.runtime.max_replicas or max(DEFAULT_MAX_REPLICAS, self.min_replicas)


def function_of(
    loaded: LoadedPlugin, *, root: Path, envs: Mapping[str, str], name: str = ""
) -> FunctionSpec:
    """Return a loaded plugin as a function."""
    plugin = loaded.plugin
    return FunctionSpec(
        name=name or plugin.name,
        reference=loaded.reference,
        root=root,
        kind=plugin.kind,
        runtime=plugin.runtime,
        place=plugin.place,
        envs=envs,
    )
