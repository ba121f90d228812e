"""What ``--faas`` would deploy: resolved and checked before anything starts (docs/faas.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arkdev.errors import UsageError
from arkdev.faas_emulator.choices import InstanceKind, NetworkPolicy
from arkdev.faas_emulator.functions import FunctionSpec, function_of
from arkdev.faas_emulator.host import FaasHost
from arkdev.faas_emulator.packages.package import PluginPackage, plugin_package
from arkdev.faas_emulator.packages.package_files import REQUIREMENTS_FILE
from arkdev.faas_emulator.packages.undeclared import UndeclaredVariable, undeclared_variables
from arkdev.faas_emulator.packages.written_secrets import written_secrets
from arkdev.faas_emulator.requirement_files.requirements import Requirements, read_requirements
from arkdev.flows.named_plugins import DEFAULT_ROLLOUT
from arkdev.flows.plugin_references import with_reference
from arkdev.flows.test_request import PluginTestRequest
from arkdev.harness.grading import Grader
from arkdev.job.workspace import Workspace
from arkdev.plugin.loading import LoadedPlugin
from arkdev.runs.records import FaultSide
from arkdev.sessions.faults.plan import FaultPlan


@dataclass(frozen=True)
class PlannedFunction:
    """A plugin of the run, and the function that it becomes."""

    loaded: LoadedPlugin
    spec: FunctionSpec


@dataclass(frozen=True)
class FaasPlan:
    """What is deployed for a run."""

    functions: tuple[PlannedFunction, ...]
    workspace: Workspace
    package: PluginPackage
    requirements: Requirements
    kind: InstanceKind
    network: NetworkPolicy
    undeclared: tuple[UndeclaredVariable, ...] = ()
    """Variables that functions read, and that this machine alone has."""
    notes: tuple[str, ...] = ()

    def settings(self) -> dict[str, Any]:
        """Return what the run folder keeps: what does not depend on this machine."""
        return {
            "network": self.network.value,
            "functions": {
                function.spec.name: function.spec.reference for function in self.functions
            },
        }


def plan_faas(
    request: PluginTestRequest,
    workspace: Workspace,
    *,
    rollout: tuple[LoadedPlugin, Mapping[str, str]],
    graders: Sequence[tuple[Grader, Mapping[str, str]]],
    faults: FaultPlan | None,
) -> FaasPlan | None:
    """Resolve what ``--faas`` asks for; None without it.

    Raises `UsageError` for what plugins in instances cannot do, `RequirementsError` for lines that
    a function cannot install, and `BuildError` for a plugin that is not in the package.
    """
    if not request.faas:
        if request.faas_engine is not None or request.network is not None:
            flag = "--faas-engine" if request.faas_engine is not None else "--network"
            raise UsageError(f"{flag} is for functions; it has no effect without --faas")
        return None
    check_capabilities(request, faults)
    functions = _functions(workspace, rollout=rollout, graders=graders)
    is_built_in = len(functions) == len(graders)
    return plan_of_functions(
        functions,
        workspace,
        kind=InstanceKind(request.faas_engine or InstanceKind.AUTO),
        network=NetworkPolicy(request.network or NetworkPolicy.OPEN),
        notes=_notes(workspace, is_traced=request.trace, is_built_in=is_built_in),
    )


def plan_of_functions(
    functions: Sequence[PlannedFunction],
    workspace: Workspace,
    *,
    kind: InstanceKind,
    network: NetworkPolicy,
    notes: Sequence[str] = (),
) -> FaasPlan:
    """Find what functions are deployed from, and check it.

    Raises `RequirementsError` for lines that a function cannot install, and `BuildError` for a
    plugin that is not in the package.
    """
    package = plugin_package(workspace)
    for function in functions:
        package.check_plugin(function.spec)
    specs = [each.spec for each in functions]
    undeclared = undeclared_variables(package, specs)
    requirements = read_requirements(workspace.root / REQUIREMENTS_FILE)
    written = written_secrets(package, specs)
    said = (*requirements.warnings, *requirements.notes, *undeclared, *written)
    return FaasPlan(
        functions=tuple(functions),
        workspace=workspace,
        package=package,
        requirements=requirements,
        kind=kind,
        network=network,
        undeclared=undeclared,
        notes=(*notes, *map(str, said)),
    )


def check_capabilities(request: PluginTestRequest, faults: FaultPlan | None) -> None:
    """Raise `UsageError` for what needs the plugins in this process (decision 7)."""
    host = FaasHost.capabilities
    if request.record is not None and not host.has_tape:
        raise UsageError(
            "--record sees what plugins get from outside only in this process; with --faas they "
            "run in instances",
            hint="record without --faas",
        )
    if faults is not None and faults.has(FaultSide.TOOL) and not host.has_plugin_traffic:
        raise UsageError(
            "--inject: HTTP calls of plugins cannot be made to fail with --faas, where plugins run "
            "in instances",
            hint="faults of the sides model, rollout and grader work; for tools leave --faas out",
        )
    if request.stall_threshold_s and not host.has_stall_watch:
        raise UsageError(
            "--stall-threshold watches code in this process; with --faas plugins run in instances",
            hint="look for stalls without --faas",
        )
    if request.uses_real_ark_sdk:
        raise UsageError(
            "--real-ark-sdk is about this process; in an instance ark_sdk is always arkdev's"
        )


def _functions(
    workspace: Workspace,
    *,
    rollout: tuple[LoadedPlugin, Mapping[str, str]],
    graders: Sequence[tuple[Grader, Mapping[str, str]]],
) -> tuple[PlannedFunction, ...]:
    """Return a function for each plugin of the user's; the built-in rollout is the platform's."""
    named = [(grader.loaded, grader.name, envs) for grader, envs in graders]
    loaded, envs = rollout
    if loaded.reference != DEFAULT_ROLLOUT:
        taken = {name for _, name, _ in named}
        name = loaded.plugin.name
        named.insert(0, (loaded, f"{name}#rollout" if name in taken else name, envs))
    root = workspace.root
    return tuple(
        PlannedFunction(
            each, function_of(with_reference(each, root=root), root=root, envs=envs, name=name)
        )
        for each, name, envs in named
    )


def _notes(workspace: Workspace, *, is_traced: bool, is_built_in: bool) -> list[str]:
    """Say what a setting of the workspace or a habit of reports lacks where plugins run apart."""
    notes = [
        "--faas: plugins run in instances, so that what holds them up inside, the services that "
        "they call and the clients that they build are not seen"
    ]
    if workspace.tools:
        hosts = ", ".join(workspace.tools)
        notes.append(
            f"--faas: the limits of tools in arkworkspace.toml ({hosts}) have no effect, since the "
            "HTTP calls of instances do not pass through arkdev"
        )
    if is_traced:
        notes.append(
            "--trace: of instances there are the spans of their calls and model calls, not those "
            "that plugins make inside"
        )
    if is_built_in:
        notes.append("--faas: the built-in rollout is the platform's own, and no function")
    return notes


def envs_of_all(functions: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Join the variables of functions, of which each has its own: the first value wins."""
    joined: dict[str, str] = {}
    for envs in functions:
        for name, value in envs.items():
            joined.setdefault(name, value)
    return joined
