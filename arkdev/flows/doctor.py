"""`arkdev doctor`: what is installed, reachable and wrong on this machine, with a fix for each."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from arkdev import __version__
from arkdev.backends.local.packages import require_packages
from arkdev.endpoints.keys import find_api_key
from arkdev.endpoints.registry import list_endpoints, user_config_file, user_keys_file
from arkdev.endpoints.spec import EndpointSpec
from arkdev.errors import ArkdevError, EndpointError, EngineError, ExitCode, MissingExtraError
from arkdev.faas_emulator.engines.engine_addresses import HOW_TO_START, engine_addresses
from arkdev.faas_emulator.requirement_files.platforms import target
from arkdev.faas_emulator.requirement_files.requirements import judge_requirements
from arkdev.job.paths import shown_path
from arkdev.job.reader import read_job
from arkdev.job.workspace import Workspace, find_workspace
from arkdev.plugin.ark_sdk import installed_namesake

_FEW_FILES = 1024
"""A rollout in flight takes about two descriptors; 512 of them want this many."""
_LITTLE_SPACE = 1 << 30
_PROBE_TIMEOUT_S = 5.0


class Status(StrEnum):
    """How a check came out."""

    OK = "ok"
    NOTE = "note"
    """Something optional is not there."""
    WARNING = "warning"
    """It works, but not always or not as it could."""
    ERROR = "error"
    """A command will fail for it."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `fix` says what to do; empty where there is nothing to do."""

    name: str
    status: Status
    detail: str
    fix: str = ""


async def diagnose(start: Path) -> list[Check]:
    """Look at the machine, the installation, the workspace around `start` and its endpoints.

    Sends no request and imports no plugin: endpoints are connected to, a job.py is read.
    """
    checks = [*_machine(start), *_packages(), _namesake(), _key_file()]
    workspace, found = _workspace(start)
    checks += found
    checks += await _endpoints(workspace)
    return [*checks, _engine()]


def exit_code_of(checks: Iterable[Check]) -> ExitCode:
    """Return 2 when anything is an error; warnings are good enough."""
    is_wrong = any(check.status is Status.ERROR for check in checks)
    return ExitCode.USAGE if is_wrong else ExitCode.OK


def _machine(start: Path) -> Iterator[Check]:
    yield Check("Python", Status.OK, f"{platform.python_version()} ({sys.executable})")
    yield Check("system", Status.OK, f"{platform.platform()}, {os.cpu_count()} CPUs")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEW_FILES:
        yield Check(
            "open files",
            Status.WARNING,
            f"at most {soft}, which is few for hundreds of rollouts at once",
            f"ulimit -n {_FEW_FILES * 4}",
        )
    else:
        yield Check("open files", Status.OK, f"at most {soft}")
    free = shutil.disk_usage(start).free
    space = f"{free / (1 << 30):.1f} GiB free at {shown_path(start)}"
    if free < _LITTLE_SPACE:
        yield Check("disk", Status.WARNING, space, "make room, or write runs elsewhere with --out")
    else:
        yield Check("disk", Status.OK, space)
    encoding = (sys.stdout.encoding or "none").lower()
    if encoding.replace("-", "") != "utf8":
        yield Check(
            "terminal",
            Status.NOTE,
            f"writes {encoding}: characters that it lacks are replaced",
            "export LC_ALL=C.UTF-8, or PYTHONIOENCODING=utf-8",
        )
    else:
        yield Check("terminal", Status.OK, encoding)


def _packages() -> Iterator[Check]:
    """The packages that arkdev needs, then its extras, from its own metadata."""
    yield Check("arkdev", Status.OK, __version__)
    needs = [Requirement(line) for line in requires("arkdev") or ()]
    for need in needs:
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            yield _package(need)
    for extra in _extras(needs):
        wanted = [need for need in needs if _belongs(need, extra)]
        missing = [need for need in wanted if not _is_met(need)]
        name = f"extra {extra}"
        if missing:
            yield Check(
                name,
                Status.NOTE,
                f"not installed ({', '.join(need.name for need in missing)})",
                f'pip install "arkdev[{extra}]"',
            )
        else:
            yield Check(name, Status.OK, ", ".join(_installed(need.name) for need in wanted))


def _extras(needs: Iterable[Requirement]) -> list[str]:
    """The extras for users, in the order of the metadata; not the one for our own development."""
    text = " ".join(str(need.marker or "") for need in needs)
    words = [part.split('"')[1] for part in text.split("extra ==")[1:]]
    return [extra for extra in dict.fromkeys(words) if extra != "dev"]


def _belongs(need: Requirement, extra: str) -> bool:
    marker = need.marker
    return (
        marker is not None
        and marker.evaluate({"extra": extra})
        and not marker.evaluate({"extra": ""})
    )


def _installed(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return name


def _is_met(need: Requirement) -> bool:
    try:
        return need.specifier.contains(version(need.name), prereleases=True)
    except PackageNotFoundError:
        return False


def _package(need: Requirement) -> Check:
    if _is_met(need):
        return Check(need.name, Status.OK, version(need.name))
    try:
        found = f"{version(need.name)} is installed, {need.specifier} is needed"
    except PackageNotFoundError:
        found = "not installed"
    return Check(need.name, Status.ERROR, found, f'pip install "{need.name}{need.specifier}"')


def _namesake() -> Check:
    found = installed_namesake()
    if found is None:
        return Check("ark_sdk", Status.OK, "served by arkdev; nothing else of that name")
    return Check(
        "ark_sdk",
        Status.WARNING,
        f"{found} is installed; inside arkdev's processes arkdev's own names win",
        "--real-ark-sdk imports the installed one; pip uninstall ark-sdk if you do not need it",
    )


def _key_file() -> Check:
    path = user_keys_file()
    if not path.exists():
        return Check("key file", Status.OK, "none; keys come from the environment")
    try:
        find_api_key("ARKDEV_DOCTOR", keys_file=path)
    except ArkdevError as error:
        return _of_error("key file", error)
    return Check("key file", Status.OK, shown_path(path))


def _workspace(start: Path) -> tuple[Workspace | None, list[Check]]:
    try:
        workspace = find_workspace(start)
    except ArkdevError as error:
        return None, [_of_error("workspace", error)]
    if workspace.is_bare:
        note = Check(
            "workspace", Status.NOTE, "none here", "arkdev init DIR, or cd into a workspace"
        )
        return workspace, [note]
    checks = [Check("workspace", Status.OK, shown_path(workspace.root))]
    try:
        job = read_job(workspace.root)
    except ArkdevError as error:
        checks.append(_of_error("job", error))
    else:
        if job is None:
            checks.append(Check("job", Status.NOTE, "no job.yaml or job.py"))
        else:
            checks.append(Check("job", Status.OK, shown_path(job.source)))
    checks += _requirements(workspace.root / "requirements.txt")
    return workspace, checks


def _requirements(path: Path) -> list[Check]:
    """Whether what the workspace names is installed here, and could be in a function."""
    name = path.name
    if not path.exists():
        return []
    try:
        found = judge_requirements(path, target=target())
    except ArkdevError as error:
        return [_of_error(name, error)]
    needs = [line.requirement for line in found.lines if line.requirement is not None]
    unmet = [
        str(need)
        for need in needs
        if not need.url and (need.marker is None or need.marker.evaluate()) and not _is_met(need)
    ]
    if unmet:
        detail = f"not installed: {', '.join(unmet)}"
        return [Check(name, Status.ERROR, detail, "pip install -r requirements.txt")]
    if found.problems:
        detail = f"a function cannot install it: {found.problems[0]}"
        return [Check(name, Status.WARNING, detail, "arkdev freeze writes one that it can")]
    return [Check(name, Status.OK, "all installed")]


async def _endpoints(workspace: Workspace | None) -> list[Check]:
    try:
        specs = list_endpoints(
            workspace_endpoints=workspace.endpoints if workspace else {},
            user_config=user_config_file(),
        )
    except ArkdevError as error:
        return [_of_error("endpoints", error)]
    return list(await asyncio.gather(*map(_endpoint, specs)))


async def _endpoint(spec: EndpointSpec) -> Check:
    """Connect to an endpoint. An unreachable one is a warning: no command may need it."""
    name = f"endpoint {spec.name}"
    if spec.family == "local":
        try:
            require_packages(purpose="it")
        except MissingExtraError as error:
            return Check(name, Status.NOTE, error.message, error.hint)
    if spec.base_url is None:
        return Check(name, Status.OK, "in this process")
    target: Any = import_module("arkdev.endpoints.http_target")
    try:
        key = (
            find_api_key(spec.api_key_env, keys_file=user_keys_file()) if spec.api_key_env else None
        )
        opened = target.HttpTarget(spec, api_key=None, timeout_s=_PROBE_TIMEOUT_S)
        await opened.check_reachable()
    except EndpointError as error:
        return Check(name, Status.WARNING, error.message, error.hint)
    except ArkdevError as error:
        return _of_error(name, error)
    if spec.api_key_env and key is None:
        return Check(
            name,
            Status.NOTE,
            f"reachable; its key {spec.api_key_env} is not set",
            f"export {spec.api_key_env}=...",
        )
    return Check(name, Status.OK, f"reachable at {spec.base_url}")


def _engine() -> Check:
    """A container engine, by its socket: `test plugin --faas` runs plugins in its containers."""
    name = "container engine"
    try:
        addresses = engine_addresses(os.environ, home=Path.home())
    except EngineError as error:
        return Check(name, Status.WARNING, str(error), error.hint)
    refused = None
    for address in addresses:
        path = address.socket
        if path is None:
            return Check(name, Status.OK, str(address))
        if not path.is_socket():
            continue
        if os.access(path, os.R_OK | os.W_OK):
            return Check(name, Status.OK, str(address))
        refused = refused or address
    if refused is not None:
        return Check(
            name,
            Status.WARNING,
            f"{refused} may not be used by you",
            "add your user to the group that owns the socket",
        )
    if addresses[0].is_chosen:
        return Check(name, Status.WARNING, f"{addresses[0]}: there is no such socket", HOW_TO_START)
    return Check(name, Status.NOTE, "none; only functions in containers need one", HOW_TO_START)


def _of_error(name: str, error: ArkdevError) -> Check:
    return Check(name, Status.ERROR, str(error), error.hint)
