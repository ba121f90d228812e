"""Engines and functions as tests want them."""

from pathlib import Path

from arkdev.faas_emulator.engines.engine import EngineFacts
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import Runtime


def facts(**changed):
    values = {
        "name": "Docker",
        "version": "20.10.24",
        "api_version": "1.41",
        "address": "unix:///var/run/docker.sock",
        "num_cpus": 8,
        "memory_mb": 16_000,
        "architecture": "amd64",
        "cgroup_version": 2,
        "is_rootless": False,
        "is_virtual": False,
        "limits_cpu": True,
        "limits_memory": True,
        "limits_swap": True,
        "limits_pids": True,
    }
    return EngineFacts(**{**values, **changed})


def function(name="search", *, envs=None, **runtime):
    return FunctionSpec(
        name=name,
        reference=f"plugins.{name}:{name}",
        root=Path("/workspace"),
        kind=PluginKind.SINGLE_ROLLOUT,
        runtime=Runtime(**runtime),
        place=f"plugins/{name}.py:1",
        envs=envs or {},
    )
