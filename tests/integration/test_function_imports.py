"""What a plugin and the worker import, from the function wheel with pydantic alone beside it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from arkdev.faas_emulator.packages.function_wheel import function_wheel


def of_pydantic() -> Iterator[Path]:
    for name in ("pydantic", "pydantic_core", "annotated_types", "typing_inspection"):
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None
        yield Path(spec.origin).parent
    extensions = find_spec("typing_extensions")
    assert extensions is not None and extensions.origin is not None
    yield Path(extensions.origin)


IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import ark_sdk
from ark_sdk.resources.pipeline_plugin import rollout, GRPOPipeline
import ark_sdk.core.plugin.rollout.proxy as proxy
import arkdev, arkdev.plugin, arkdev.faas_emulator.worker
from arkdev.plugin.ark_sdk import NAMES
assert arkdev.rollout is rollout and proxy.InferenceProxy is arkdev.InferenceProxy
for module, names in NAMES.items():
    for name in names:
        getattr(importlib.import_module(module), name)
for name in arkdev.__all__:
    getattr(arkdev, name)
waits = set()
for package in (arkdev.plugin, arkdev.faas_emulator.worker):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if found.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            waits.add(error.name)
assert waits <= {"openai", "aiohttp", "requests", "urllib3"}, waits
assert arkdev.__file__.startswith(sys.argv[1])
"""


def test_a_function_imports_all_of_it_with_pydantic_alone(tmp_path: Path) -> None:
    """`ark_sdk` is there too, with nothing that installs its names first."""
    site = tmp_path / "site"
    with zipfile.ZipFile(function_wheel(tmp_path)) as archive:
        archive.extractall(site)
    for path in of_pydantic():
        (site / path.name).symlink_to(path)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORT_ALL, str(site)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
