"""Write docs/rows.md: where each row of the contract is tested, from tests/contract/surface.toml.

``--check`` writes nothing and exits 1 when the page is not what would be written.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "rows.md"
HEAD = """\
# The rows of the contract

Each row of the contract and the test that fails when it is broken. Written by `.ci/rows.py` from
[surface.toml](../tests/contract/surface.toml): change that, then run `python .ci/rows.py`.
"""


def page() -> str:
    """Return the text of the page."""
    text = (ROOT / "tests" / "contract" / "surface.toml").read_text(encoding="utf-8")
    lines = [HEAD]
    for section, rows in tomllib.loads(text).items():
        lines += [f"## {section}", "", "| rows | tested by |", "|---|---|", *_table(rows), ""]
    return "\n".join(lines)


def _table(rows: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """One line for neighbours of the same test."""
    for told, group in groupby(rows.items(), key=lambda row: _told(row[1])):
        names = [name for name, _ in group]
        span = names[0] if len(names) == 1 else f"{names[0]} to {names[-1].partition('-')[2]}"
        yield f"| {span} | {told} |"


def _told(entry: Mapping[str, str]) -> str:
    if "test" in entry:
        file, _, function = entry["test"].partition("::")
        return f"`{function}` in `{file.removeprefix('tests/')}`"
    return f"comes with {entry['later']}" if "later" in entry else entry["reason"]


def main() -> int:
    """Write the page, or compare it."""
    if "--check" in sys.argv[1:]:
        is_same = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page()
        print("docs/rows.md is up to date" if is_same else "run python .ci/rows.py")
        return 0 if is_same else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
