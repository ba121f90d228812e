"""surface.toml names a test, or a documented reason, for every row of the contract.

With ARKDEV_DOCS_DIR set to the folder of SURFACE.md the rows are compared with it. While tests are
still being written, ARKDEV_SURFACE_DRAFT=1 lets rows marked `todo` pass.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SURFACE = Path(__file__).with_name("surface.toml")


def load_rows() -> dict[str, dict[str, Any]]:
    sections = tomllib.loads(SURFACE.read_text(encoding="utf-8"))
    for section, rows in sections.items():
        strangers = [row for row in rows if row.rpartition("-")[0] != section]
        assert strangers == [], f"rows in the wrong section [{section}]"
    return {row: entry for rows in sections.values() for row, entry in rows.items()}


ROWS = load_rows()


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Names of the test functions of a file, without importing it."""
    if not path.is_file():
        return frozenset()
    module = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in module.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )


def exists(node_id: str) -> bool:
    file, _, function = node_id.partition("::")
    return function in functions_of(ROOT / file)


def test_every_row_has_a_test_or_a_reason() -> None:
    wrong = {
        row: entry
        for row, entry in ROWS.items()
        if len({"test", "later", "reason"} & entry.keys()) != 1
        or entry.keys() - {"test", "later", "reason", "todo"}
        or ("todo" in entry and (entry["todo"] is not True or "test" not in entry))
        or not all(value is True or value.strip() for value in entry.values())
    }
    assert wrong == {}


NOT_BUILT = {
    "login",
    "on-policy distillation",
    "remote job management",
    "routing replay",
    "the last step of the workflow",
    "the viewer",
    "upgrades and packaging for the remote",
}
"""Parts of the product. One that is built leaves this set, and its rows name their tests."""


def test_a_row_waits_for_a_part_that_is_not_built_only() -> None:
    waiting = {row: entry["later"] for row, entry in ROWS.items() if "later" in entry}
    assert {row: part for row, part in waiting.items() if part not in NOT_BUILT} == {}
    assert set(waiting.values()) == NOT_BUILT


def test_every_named_test_exists() -> None:
    missing = {
        row: entry["test"]
        for row, entry in ROWS.items()
        if "test" in entry and "todo" not in entry and not exists(entry["test"])
    }
    assert missing == {}


def test_no_row_is_marked_todo_whose_test_is_written() -> None:
    written = {row: entry["test"] for row, entry in ROWS.items() if "todo" in entry}
    assert {row: test for row, test in written.items() if exists(test)} == {}


@pytest.mark.skipif(
    os.environ.get("ARKDEV_SURFACE_DRAFT") == "1", reason="ARKDEV_SURFACE_DRAFT=1: a draft"
)
def test_no_row_still_waits_for_its_test() -> None:
    assert {row: entry["test"] for row, entry in ROWS.items() if "todo" in entry} == {}


def test_the_page_of_rows_is_made_from_this_table() -> None:
    script = [sys.executable, str(ROOT / ".ci" / "rows.py"), "--check"]
    told = subprocess.run(script, capture_output=True, text=True, encoding="utf-8", check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def test_every_test_that_the_page_of_field_cases_names_exists() -> None:
    """`test_a`, `test_b` and `test_c` in `file`."""
    text = (ROOT / "docs" / "field-cases.md").read_text(encoding="utf-8")
    named = re.findall(r"((?:`test_\w+`(?:, | and )?)+) in `([\w/.]+)`", text)
    tests = {f"tests/{file}::{name}" for names, file in named for name in re.findall(r"\w+", names)}
    tests = {test for test in tests if not test.endswith("::and")}
    assert len(tests) >= text.count("`test_") - 2  # the same one may stand in two rows
    assert {test for test in tests if not exists(test)} == set()


@pytest.mark.docs
def test_the_rows_are_those_of_the_contract() -> None:
    folder = os.environ.get("ARKDEV_DOCS_DIR")
    if not folder:
        pytest.skip("ARKDEV_DOCS_DIR names no folder")
    text = (Path(folder) / "SURFACE.md").read_text(encoding="utf-8")
    contract = re.findall(r"^\| ([A-Z0-9]+-\d+) \|", text, flags=re.MULTILINE)
    assert len(contract) >= 533
    assert sorted(ROWS) == sorted(contract)
