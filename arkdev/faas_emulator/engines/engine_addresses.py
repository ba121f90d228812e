"""Where container engines listen on this machine. Looks at variables and files only.

The order is that of the engines' own command lines: what a variable names, then the Docker context
in use, then the places where Docker, Docker Desktop and Podman put their sockets.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from arkdev.errors import EngineError

HOW_TO_START = (
    "start Docker (Linux: sudo systemctl start docker; macOS: open -a Docker) or Podman's socket "
    "(systemctl --user start podman.socket; macOS: podman machine start), or set DOCKER_HOST"
)
_SCHEMES = ("unix://", "tcp://", "http://", "https://")


@dataclass(frozen=True)
class EngineAddress:
    """One place where an engine may listen."""

    url: str
    """``unix:///PATH`` or ``tcp://HOST:PORT``."""
    source: str
    """What named it: DOCKER_HOST, "Docker context desktop-linux", "Podman's user socket"."""
    is_chosen: bool
    """Somebody chose it: when it does not answer, no other one is taken in its place."""

    @property
    def socket(self) -> Path | None:
        """The Unix socket; None for a TCP address."""
        return Path(self.url.removeprefix("unix://")) if self.url.startswith("unix://") else None

    def __str__(self) -> str:
        return f"{self.url} ({self.source})"


def engine_addresses(environment: Mapping[str, str], *, home: Path) -> list[EngineAddress]:
    """Return where to look for an engine; a chosen address is the only one.

    Raises `EngineError` for a chosen address of a kind that arkdev cannot talk to.
    """
    for variable in ("DOCKER_HOST", "CONTAINER_HOST"):
        if url := environment.get(variable):
            return [_chosen(url, source=variable)]
    name = environment.get("DOCKER_CONTEXT") or _current_context(environment, home=home)
    if name and name != "default":
        return [_of_context(name, environment, home=home)]
    return [
        EngineAddress(f"unix://{path}", source, is_chosen=False)
        for path, source in _usual_places(environment, home=home)
    ]


def _chosen(url: str, *, source: str) -> EngineAddress:
    if not url.startswith(_SCHEMES):
        raise EngineError(
            f"{source} names {url}, which arkdev cannot talk to",
            hint="a Unix socket (unix:///PATH) or tcp://127.0.0.1:PORT; an engine on another "
            "machine can be reached through a socket that ssh -L forwards",
        )
    return EngineAddress(url, source, is_chosen=True)


def _docker_folder(environment: Mapping[str, str], *, home: Path) -> Path:
    return Path(environment.get("DOCKER_CONFIG") or home / ".docker")


def _current_context(environment: Mapping[str, str], *, home: Path) -> str:
    path = _docker_folder(environment, home=home) / "config.json"
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""  # Docker's own command line goes on with its default too
    name = settings.get("currentContext", "") if isinstance(settings, dict) else ""
    return name if isinstance(name, str) else ""


def _of_context(name: str, environment: Mapping[str, str], *, home: Path) -> EngineAddress:
    """Read a context as `docker context` stores it: in a folder named after its name's hash."""
    folder = hashlib.sha256(name.encode()).hexdigest()
    path = _docker_folder(environment, home=home) / "contexts" / "meta" / folder / "meta.json"
    try:
        url = json.loads(path.read_text(encoding="utf-8"))["Endpoints"]["docker"]["Host"]
    except (OSError, ValueError, KeyError, TypeError):
        raise EngineError(
            f"the Docker context {name} is in use and cannot be read",
            where=str(path),
            hint="docker context ls; docker context use default",
        ) from None
    return _chosen(str(url), source=f"Docker context {name}")


def _usual_places(environment: Mapping[str, str], *, home: Path) -> Iterator[tuple[str, str]]:
    runtime = environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    yield "/var/run/docker.sock", "Docker"
    yield f"{runtime}/docker.sock", "rootless Docker"
    yield f"{home}/.docker/run/docker.sock", "Docker Desktop"
    yield f"{home}/.docker/desktop/docker.sock", "Docker Desktop"
    yield f"{runtime}/podman/podman.sock", "Podman's user socket"
    yield "/run/podman/podman.sock", "Podman's system socket"
    machine = "podman/podman-machine-default-api.sock"
    yield f"{environment.get('TMPDIR', '/tmp').rstrip('/')}/{machine}", "Podman's machine"
