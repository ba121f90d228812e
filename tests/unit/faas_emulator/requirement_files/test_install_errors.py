"""What pip and uv say when they fail is told with its cause, its line and advice."""

from pathlib import Path

import pytest

from arkdev.faas_emulator.requirement_files.install_errors import install_failure, last_lines
from arkdev.faas_emulator.requirement_files.requirements import read_requirements

PIP_NAME = """\
Collecting idna==3.10
ERROR: Could not find a version that satisfies the requirement nosuch==1.0 (from versions: none)
ERROR: No matching distribution found for nosuch==1.0"""
PIP_VERSION = """\
ERROR: Could not find a version that satisfies the requirement idna==99 \
(from versions: 3.1, 3.2, 3.3, 3.4, 3.5, 3.6)
ERROR: No matching distribution found for idna==99"""
PIP_CONFLICT = """\
ERROR: Cannot install pydantic==1.10.2 and pydantic<3 because these package versions have \
conflicting dependencies.
ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/

The conflict is caused by:
    The user requested pydantic==1.10.2
    The user requested pydantic<3 and >=2.8
    The user requested pydantic==1.10.2

To fix this you could try to:
1. loosen the range"""
PIP_BUILD = """\
  Building wheel for my_ext (setup.py): started
  error: command 'gcc' failed: No such file or directory
ERROR: Failed building wheel for my_ext
ERROR: Failed to build installable wheels for some pyproject.toml based projects (my_ext)"""
PIP_NETWORK = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)'
ERROR: Could not find a version that satisfies the requirement idna==3.10 (from versions: none)
ERROR: No matching distribution found for idna==3.10"""
PIP_GIT = "ERROR: Cannot find command 'git' - do you have 'git' installed and in your PATH?"
UV_NAME = """\
Using Python 3.11.7 environment at: .
error: No solution found when resolving dependencies
  cause: Because nosuch was not found in the package registry and you require nosuch==1.0, we can \
conclude that your requirements are unsatisfiable."""
UV_DRAWN = """\
  × No solution found when resolving dependencies:
  ╰─▶ Because arkdev depends on pydantic>=2.8 and you require pydantic==1.10.2, we can conclude
      that your requirements are unsatisfiable."""


@pytest.mark.parametrize(
    ("said", "cause", "line", "advice"),
    [
        (PIP_NAME, "No matching distribution found for nosuch==1.0", 2, "check the name"),
        (PIP_VERSION, "(the newest there are: 3.2, 3.3, 3.4, 3.5, 3.6)", 3, "the version"),
        (PIP_CONFLICT, "The user requested pydantic<3 and >=2.8", 4, "go together"),
        (PIP_BUILD, "Failed building wheel for my_ext", 5, "no wheel for this platform"),
        (PIP_NETWORK, "No matching distribution found for idna==3.10", 3, "not be reached"),
        (PIP_GIT, "Cannot find command 'git'", None, "a base that has it"),
        (UV_NAME, "Because nosuch was not found in the package registry", 2, "check the name"),
        (UV_DRAWN, "No solution found when resolving dependencies:\nBecause arkdev", 4, "together"),
        ("Killed", "Killed", None, ""),
    ],
)
def test_a_failure_has_its_cause_its_line_and_advice(
    tmp_path: Path, said: str, cause: str, line: int | None, advice: str
) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(
        "# what we need\nNoSuch==1.0\nidna==3.10\npydantic==1.10.2\nmy-ext==2\n", "utf-8"
    )
    failure = install_failure(said.splitlines(), read_requirements(path))
    assert cause in failure.cause
    assert failure.where == (f"{path}:{line}" if line else "")
    assert advice in failure.advice


def test_a_conflict_is_told_once_and_without_pips_own_advice(tmp_path: Path) -> None:
    failure = install_failure(PIP_CONFLICT.splitlines(), read_requirements(tmp_path / "none.txt"))
    assert failure.cause.count("The user requested pydantic==1.10.2") == 1
    assert "loosen" not in failure.cause
    assert "ResolutionImpossible" not in failure.cause


def test_last_lines_do_not_repeat_the_cause() -> None:
    lines = ["one", "ERROR: two", "x" * 400]
    assert last_lines(lines, but_not="two").splitlines()[1:] == ["  | one", f"  | {'x' * 300}..."]
    assert len(last_lines([str(n) for n in range(50)]).splitlines()) == 9
