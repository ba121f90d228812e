"""What an import costs: heavy packages stay out of `import arkdev`, `--version` and `--help`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    "aiohttp",
    "docker",
    "mlflow",
    "openai",
    "ray",
    "tensorboard",
    "tokenizers",
    "torch",
    "trackio",
    "transformers",
    "vllm",
    "volcenginesdkarkruntime",
    "wandb",
}
OF_A_CONTAINER = {
    "annotated_types",
    "arkdev",
    "pydantic",
    "pydantic_core",
    "typing_extensions",
    "typing_inspection",
}
"""pydantic and what it needs; beside these only the standard library."""

_PROBE = """
import json, sys
before = set(sys.modules)
try:
    {statement}
except SystemExit as exit_request:
    assert not exit_request.code, exit_request.code
names = sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})
print(json.dumps(names), file=sys.stderr)
"""
_COMMAND = "sys.argv = {argv!r}; from arkdev.__main__ import main; main()"


def imported_by(statement: str) -> set[str]:
    """Top-level names of the modules that `statement` loads in a new interpreter."""
    finished = subprocess.run(
        [sys.executable, "-c", _PROBE.format(statement=statement)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    names = json.loads(finished.stderr.splitlines()[-1])
    # a module of constants that the standard library names after the platform
    return {name for name in names if not name.startswith("_sysconfigdata")}


def imported_by_command(*arguments: str) -> set[str]:
    return imported_by(_COMMAND.format(argv=["arkdev", *arguments]))


@pytest.mark.parametrize(
    "statement",
    [
        "import arkdev",
        "import arkdev.types, arkdev.errors",
        "import arkdev; [getattr(arkdev, name) for name in arkdev.__all__]",
        "from arkdev import rollout, single_grader, Runtime, PluginStatus, InferenceProxy",
    ],
)
def test_a_plugin_s_imports_need_pydantic_and_the_standard_library_alone(statement: str) -> None:
    assert imported_by(statement) - OF_A_CONTAINER - sys.stdlib_module_names == set()


def test_the_package_itself_loads_not_even_pydantic() -> None:
    assert "pydantic" not in imported_by("import arkdev")


def test_version_loads_no_command_line_library() -> None:
    loaded = imported_by_command("--version")
    assert loaded & (HEAVY | {"typer", "click", "rich", "pydantic"}) == set()


def test_help_loads_nothing_that_a_command_will_need() -> None:
    loaded = imported_by_command("--help")
    assert "typer" in loaded
    assert loaded & (HEAVY | {"asyncio", "rich", "pydantic", "ruamel"}) == set()
