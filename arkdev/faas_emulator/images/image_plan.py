"""How the image of a workspace's functions is built: Dockerfile, context, tag. No engine here.

What changes more rarely comes first, so that a change builds only what follows it: the base, a
user, the requirements, arkdev's function side, the plugins' package. arkdev's side needs no
installer: its wheel is unpacked, so a new arkdev leaves the layer of the requirements alone and new
requirements cost arkdev's layer a second. The package is the last instruction.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO
from urllib.parse import urlsplit

from arkdev.errors import BuildError, UsageError
from arkdev.faas_emulator.packages.archives import add_file, add_folder, open_archive
from arkdev.faas_emulator.packages.function_wheel import FUNCTION_REQUIRES, function_wheel
from arkdev.faas_emulator.packages.package import PluginPackage, shown_size
from arkdev.faas_emulator.requirement_files.platforms import DEFAULT_PYTHON, target
from arkdev.faas_emulator.requirement_files.requirements import Requirements
from arkdev.faas_emulator.worker.wire import WORKER_ARGUMENTS

DEFAULT_BASE = "python:3.11-slim"
REPOSITORY = "arkdev-function"
WORKSPACE_LABEL = "arkdev.workspace"
"""The label of an image that tells its workspace; the value is `workspace_id`."""
FUNCTION_UID = 65534
"""The user and group that a function runs as: nobody, also where the engine is not asked for it."""
PACKAGE_FOLDER = "/workspace"
"""Where the plugins' package lies in the image: the function's working directory."""

_OWN_FOLDER = "/opt/arkdev"
_INDEX_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")
_REFERENCE = re.compile(r"[A-Za-z0-9][\w./:@-]*")
_ENVS = (
    "PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp "
    "PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore"
)
_SET_UP = f"""
import importlib.util, os, sys, sysconfig
if sys.version_info < (3, 10):
    sys.exit("the base image has Python %d.%d: functions need 3.10 or newer" % sys.version_info[:2])
if importlib.util.find_spec("pip") is None:
    sys.exit("the Python of the base image has no pip")
for name, line in (("passwd", "{{0}}:x:{{1}}:{{1}}::/tmp:/bin/sh"), ("group", "{{0}}:x:{{1}}:")):
    path = "/etc/" + name
    known = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
    if not any(entry.split(":")[2:3] == ["{FUNCTION_UID}"] for entry in known.splitlines()):
        with open(path, "a", encoding="utf-8") as file:
            file.write(line.format("nobody", {FUNCTION_UID}) + "\\n")
site = sysconfig.get_path("purelib")
os.makedirs(site, exist_ok=True)
with open(os.path.join(site, "arkdev.pth"), "w", encoding="utf-8") as file:
    file.write("{_OWN_FOLDER}/site\\n")
"""
"""Runs in the base with its own Python, so that no base needs a package for it."""


@dataclass(frozen=True)
class BuildStep:
    """One instruction of the Dockerfile."""

    words: str
    """What it does; instructions with the same words are one step for people."""
    instruction: str


@dataclass(frozen=True)
class ImagePlan:
    """How an image is built. Made by `plan_image`."""

    base_id: str
    """Of the base image."""
    platform: str
    steps: tuple[BuildStep, ...]
    requirements_step: str
    """The words of the step that installs the requirements."""
    build_args: Mapping[str, str]
    """Never in the image's environment, but in its history: nothing secret."""
    notes: tuple[str, ...]
    """The platform, and what follows from it: a line each."""

    @property
    def words(self) -> list[str]:
        """What each instruction does, in their order."""
        return [step.words for step in self.steps]

    @property
    def dockerfile(self) -> str:
        """The Dockerfile."""
        return "".join(f"{step.instruction}\n" for step in self.steps)

    def write_context(
        self, target: IO[bytes], *, package: PluginPackage, requirements: Requirements
    ) -> str:
        """Write the build's context, a tar, and return the tag of the image that it gives.

        The tag holds a hash of all that the image is made of; no file is read again afterwards.
        """
        with open_archive(target) as archive:
            add_file(archive, "Dockerfile", self.dockerfile.encode())
            for name, text in _install_files(requirements).items():
                add_file(archive, f"requirements/{name}", text.encode())
            _add_function_side(archive, below="site")
            package.add_to(archive, below="package")
        target.seek(0)
        digest = hashlib.sha256(f"{self.base_id} {self.platform}".encode())
        digest.update(json.dumps(sorted(self.build_args.items())).encode())
        while block := target.read(1 << 20):
            digest.update(block)
        target.seek(0)
        return f"{REPOSITORY}:{digest.hexdigest()[:20]}"


def workspace_id(root: Path) -> str:
    """Return what tells a workspace from others in labels, without its path."""
    return hashlib.sha256(str(root).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def plan_image(
    package: PluginPackage,
    requirements: Requirements,
    *,
    base: tuple[str, str],
    platform: str,
    engine_platform: str,
    environ: Mapping[str, str],
) -> ImagePlan:
    """Plan an image on `base`: its reference and its id.

    `engine_platform` is the engine's own, which the plan compares with the function's. Of `environ`
    only the variables that name pip's package index count. Raises `UsageError` for a base or a
    platform that is none, `BuildError` for an index with a password: the image would hold it.
    """
    reference, base_id = base
    check_base(reference)
    target(platform, python=DEFAULT_PYTHON)
    build_args = _index_variables(environ)
    count = sum(1 for line in requirements.lines if line.name and not line.is_constraint)
    installing = "requirements: pydantic, for arkdev's function side"
    if count:
        packages = "1 package and what it needs" if count == 1 else f"{count} and what they need"
        installing = f"requirements: {packages}"
    files = f"{len(package.files)} files, {shown_size(package.size_bytes)}"
    steps = [
        BuildStep(f"base {reference}, {platform}", f"FROM {reference}"),
        *_steps("user", _run("python", "-c", _SET_UP), f"ENV {_ENVS}", f"WORKDIR {PACKAGE_FOLDER}"),
        *_steps(installing, *_install(requirements, build_args)),
        *_steps("arkdev's function side", *_function_side()),
        *_steps("settings", *_settings(workspace_id(package.root))),
        BuildStep(f"plugins: {files}", f"COPY package/ {PACKAGE_FOLDER}/"),
    ]
    return ImagePlan(
        base_id=base_id,
        platform=platform,
        steps=tuple(steps),
        requirements_step=installing,
        build_args=build_args,
        notes=tuple(_platform_notes(platform, engine_platform)),
    )


def check_base(reference: str) -> None:
    """Raise `UsageError` when `reference` cannot name an image."""
    if not _REFERENCE.fullmatch(reference):
        raise UsageError(
            f"{reference!r} names no base image", hint=f"write it as {DEFAULT_BASE}: NAME:TAG"
        )


def _platform_notes(platform: str, engine_platform: str) -> list[str]:
    if platform == engine_platform:
        return [f"platform {platform}, the engine's own"]
    return [
        f"platform {platform}; the engine's own is {engine_platform}, so it is built and run by "
        "emulation: slower, and only where the engine has QEMU's handlers (binfmt)"
    ]


def _index_variables(environ: Mapping[str, str]) -> dict[str, str]:
    given = {name: environ[name] for name in _INDEX_VARIABLES if environ.get(name)}
    for name, value in given.items():
        if any("@" in urlsplit(word).netloc for word in value.split()):
            raise BuildError(
                f"the address in {name} has a password, which the image's history would keep",
                hint="name an index without one for the build, or run without containers, where "
                "nothing is kept",
            )
    return given


def _run(*command: str) -> str:
    return f"RUN {json.dumps(command)}"


def _steps(words: str, *instructions: str) -> list[BuildStep]:
    return [BuildStep(words, instruction) for instruction in instructions]


def _install_files(requirements: Requirements) -> dict[str, str]:
    return {**requirements.install_files, "arkdev.txt": f"{FUNCTION_REQUIRES}\n"}


def _install(requirements: Requirements, build_args: Mapping[str, str]) -> list[str]:
    """One installation for all, so that what does not go together is found; see `uses_hashes`."""
    folder = f"{_OWN_FOLDER}/requirements"
    pip = ("python", "-m", "pip", "install", "--no-cache-dir", "--progress-bar", "off")
    files = [f"{folder}/requirements.txt", f"{folder}/arkdev.txt"]
    if requirements.uses_hashes:  # then pip wants a hash for arkdev's line too
        runs = [_run(*pip, "--no-input", "-r", file) for file in files]
    else:
        runs = [_run(*pip, "--no-input", *(word for file in files for word in ("-r", file)))]
    return [f"COPY requirements/ {folder}/", *(f"ARG {name}" for name in build_args), *runs]


def _function_side() -> list[str]:
    folder = f"{_OWN_FOLDER}/site"
    compile_it = ("python", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
    return [f"COPY site/ {folder}/", _run(*compile_it, folder)]


def _settings(workspace: str) -> list[str]:
    return [
        f"USER {FUNCTION_UID}:{FUNCTION_UID}",
        f"LABEL {WORKSPACE_LABEL}={workspace}",
        f"CMD {json.dumps(['python', *WORKER_ARGUMENTS])}",
    ]


def _add_function_side(archive: tarfile.TarFile, *, below: str) -> None:
    add_folder(archive, below)
    for name, content in _content_of_function_wheel():
        add_file(archive, f"{below}/{name}", content)


@functools.cache  # arkdev's code does not change while it runs; to collect it takes 0.2 s
def _content_of_function_wheel() -> tuple[tuple[str, bytes], ...]:
    with TemporaryDirectory() as folder, zipfile.ZipFile(function_wheel(Path(folder))) as wheel:
        return tuple((name, wheel.read(name)) for name in sorted(wheel.namelist()))
