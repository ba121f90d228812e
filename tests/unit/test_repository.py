"""Rules for the files of the repository themselves."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("arkdev", "templates")
_OPENERS = {"open", "fdopen", "read_text", "write_text"}
_BINARY = {"rb", "wb", "ab", "xb", "rb+", "r+b", "wb+", "w+b", "ab+", "a+b"}
# spelt in pieces, so that this file is not its own finding
_PRIVATE = re.compile(
    "|".join(["/wo" + "rk/", "/ro" + "ot/", r"/ho" + r"me/\w+/", "/opt/py" + "pi"])
)
_INDEX = re.compile(
    "|".join(
        [
            r"py" + r"pi\.org",
            "pythonhost" + "ed",
            r"registry\.npm",
            r"://mirr" + "or",
            r"/wh" + "l/",
        ]
    )
)


def text_files() -> Iterator[Path]:
    """Every file that git tracks or would track, except what is not text."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in listed.stdout.decode("utf-8").split("\0"):
        path = ROOT / name
        if name and path.is_file() and b"\0" not in path.read_bytes():
            yield path


def opens_text(call: ast.Call) -> bool:
    """Whether the call opens a text file, by its name and its arguments."""
    function = ast.unparse(call.func)
    name = function.rpartition(".")[2]
    if name not in _OPENERS or function in ("os.open", "webbrowser.open"):
        return False
    constants = {node.value for node in ast.walk(call) if isinstance(node, ast.Constant)}
    if name == "open" and "." in function and call.args:
        # a path's open() takes a mode first; anything else is another thing that opens
        return isinstance(getattr(call.args[0], "value", None), str) and not constants & _BINARY
    return not (name in ("open", "fdopen") and constants & _BINARY)


def calls_without_encoding(source: str) -> Iterator[int]:
    """Lines of calls that open a text file and leave its encoding to the machine."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not opens_text(node):
            continue
        # a keyword without a name is **options, which may hold the encoding
        if not {keyword.arg for keyword in node.keywords} & {"encoding", None}:
            yield node.lineno


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('open("a")', [1]),
        ('open("a", "rb")', []),
        ('open("a", encoding="utf-8")', []),
        ('path.read_text()\npath.write_text("b")', [1, 2]),
        ('path.open("ab")', []),
        ('path.open("w")\npath.open()', [1, 2]),
        ("door.open(session)", []),
        ('os.open("a", 0)', []),
        ('open("a", **options)', []),
    ],
)
def test_the_encoding_check_sees_what_it_must(source: str, lines: list[int]) -> None:
    assert list(calls_without_encoding(source)) == lines


def test_every_text_file_is_opened_with_an_encoding() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in SHIPPED
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in calls_without_encoding(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_no_file_names_a_place_of_one_machine_or_a_package_index() -> None:
    found = []
    for path in text_files():
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [
            f"{path.relative_to(ROOT)}: {match.group()}"
            for pattern in (_PRIVATE, _INDEX)
            for match in pattern.finditer(text)
        ]
    assert found == []


def test_every_text_file_is_utf_8_without_carriage_returns() -> None:
    found = []
    for path in text_files():
        content = path.read_bytes()
        try:
            content.decode("utf-8")
        except UnicodeDecodeError as error:
            found.append(f"{path.relative_to(ROOT)}: {error}")
        if b"\r" in content or content.startswith(b"\xef\xbb\xbf"):
            found.append(f"{path.relative_to(ROOT)}: CR or BOM")
    assert [name for name in found if not name.startswith("tests/assets/")] == []
