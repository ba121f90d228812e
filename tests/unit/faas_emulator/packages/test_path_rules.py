"""Patterns name what Docker's own client leaves out; every expectation here was seen there."""

import pytest

from arkdev.faas_emulator.packages.path_rules import PathRules, dockerignore_patterns

FILES = (
    ".env",
    ".venv/bin/python",
    "README.md",
    "a.py",
    "data/t.jsonl",
    "plugins/.hidden/x",
    "plugins/403.html",
    "plugins/README.md",
    "plugins/a b.txt",
    "plugins/a.py",
    "plugins/ab",
    "plugins/b",
    "plugins/sub/b.py",
)
PLUGINS = {path for path in FILES if path.startswith("plugins/")}
HIDDEN = {".env", ".venv/bin/python", "plugins/.hidden/x"}
CODE = {"a.py", "plugins/a.py", "plugins/sub/b.py"}


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("**/.*", HIDDEN),
        (".*", {".env", ".venv/bin/python"}),
        (".*\n!.env", {".venv/bin/python"}),
        ("*", set(FILES)),
        ("**", set(FILES)),
        ("**\n!a.py", set(FILES) - {"a.py"}),
        ("*\n!plugins", set(FILES) - PLUGINS),
        ("*\n!plugins/*.py", set(FILES) - {"plugins/a.py"}),
        ("plugins\n!plugins/sub/b.py", PLUGINS - {"plugins/sub/b.py"}),
        ("plugins/sub\n!plugins", {"plugins/sub/b.py"}),
        ("!a.py\na.py", {"a.py"}),
        ("*.md", {"README.md"}),
        ("**/*.md", {"README.md", "plugins/README.md"}),
        ("*/*.md", {"plugins/README.md"}),
        ("**.py", CODE),
        ("**/*.py\n!plugins/**/b.py", CODE - {"plugins/sub/b.py"}),
        ("plugins/**/b.py", {"plugins/sub/b.py"}),
        ("**/sub", {"plugins/sub/b.py"}),
        ("pl*/**\n!pl*/ab", PLUGINS - {"plugins/ab"}),
        ("plugins/sub/", {"plugins/sub/b.py"}),
        ("/plugins/sub", {"plugins/sub/b.py"}),
        ("./plugins//sub", {"plugins/sub/b.py"}),
        ("plugins/../data", {"data/t.jsonl"}),
        ("../plugins", set()),
        (".", set()),
        ("# a comment\n  data", {"data/t.jsonl"}),
        ("\ufeffdata", {"data/t.jsonl"}),
        ("  *.md  ", {"README.md"}),
        ("[ad]*", {"a.py", "data/t.jsonl"}),
        ("plugins/?", {"plugins/b"}),
        ("plugins/[!a]*", {"plugins/a b.txt", "plugins/a.py", "plugins/ab"}),
        ("plugins/[^a]", {"plugins/b"}),
        ("plugins/a b.txt", {"plugins/a b.txt"}),
        ("plugins/a\\ b.txt", {"plugins/a b.txt"}),
        ("plugins/(a).py", set()),
    ],
)
def test_what_a_dockerignore_leaves_out(text: str, left_out: set[str]) -> None:
    rules = PathRules(pattern for _, pattern in dockerignore_patterns(text))
    assert {path for path in FILES if rules.match(path)} == left_out


def test_a_pattern_that_cannot_be_read_is_quoted() -> None:
    with pytest.raises(ValueError, match=r"'plugins/\[a' is not a pattern"):
        PathRules(["plugins/[a"])
    with pytest.raises(ValueError, match="'!' excepts nothing"):
        PathRules(["!"])


def test_patterns_have_their_lines() -> None:
    assert dockerignore_patterns("# x\n\n a \nb\n") == [(3, "a"), (4, "b")]
