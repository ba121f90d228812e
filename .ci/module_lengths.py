"""No module is longer than 400 lines: a reader opens it whole.

Prints the modules that are, and the longest ones; exits 1 when there is one. Functions are
measured by ruff (PLR0915, C901, PLR0913).
"""

from __future__ import annotations

import sys
from pathlib import Path

LIMIT = 400
FOLDERS = ("arkdev", "templates", "benchmarks", "tools", ".ci")


def main() -> int:
    """Measure every module below the repository's root."""
    root = Path(__file__).resolve().parent.parent
    lengths = {
        path.relative_to(root): len(path.read_text(encoding="utf-8").splitlines())
        for folder in FOLDERS
        for path in (root / folder).rglob("*.py")
    }
    too_long = {path: length for path, length in lengths.items() if length > LIMIT}
    for path, length in sorted(too_long.items()):
        print(f"{path}: {length} lines, more than {LIMIT}: divide it by what it knows")
    longest = max(lengths, key=lambda path: lengths[path])
    print(f"{len(lengths)} modules, the longest is {longest} with {lengths[longest]} lines")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
