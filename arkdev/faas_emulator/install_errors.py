"""What pip and uv say when they cannot install: the cause, the requirement's line, advice."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from arkdev.faas_emulator.requirements import Requirements

_MAX_CAUSE_LINES = 12
_MAX_LAST_LINES = 8


@dataclass(frozen=True)
class InstallFailure:
    """Why requirements could not be installed."""

    cause: str
    """The installer's own words, shortened; several lines."""
    where: str
    """file:line of the requirement; empty when it cannot be told."""
    advice: str


_ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"Temporary failure in name resolution|Name or service not known|NewConnectionError|"
        r"ConnectTimeoutError|ReadTimeoutError|dns error|[Ff]ailed to fetch|Connection refused",
        "the package index could not be reached: check the network; PIP_INDEX_URL (for uv "
        "UV_DEFAULT_INDEX) names another index",
    ),
    (
        r"[Cc]annot find command 'git'|Git executable not found|git.*not found",
        "the line is installed with git, which the base image lacks: use a base that has it, or "
        "the archive's URL",
    ),
    (
        r"hashes are required|do not match the hashes|[Hh]ash mismatch",
        "in a file with hashes every requirement needs one that fits, also those of others: "
        "`uv pip compile --generate-hashes` writes them",
    ),
    (
        r"conflicting dependencies|are incompatible|your requirements are unsatisfiable.*Because",
        "these versions do not go together: `arkdev freeze` writes versions that do",
    ),
    (
        r"requires a different [Pp]ython|Requires-Python|requires? Python ?[<>=]",
        "another version of the package, or a base image with another Python",
    ),
    (
        r"Failed building wheel|Failed to build|did not run successfully",
        "it has no wheel for this platform and Python, and could not be built from source: pin a "
        "version that has one, or use a base image with what its build needs",
    ),
    (
        r"No matching distribution|not found in the package registry|there (is|are) no versions?",
        "check the name and the version; `arkdev freeze` writes those that are installed here",
    ),
    (r"No space left on device", "make room on the disk"),
    (r"No module named pip", "use a base image that has Python with pip"),
)


def install_failure(output: Sequence[str], requirements: Requirements) -> InstallFailure:
    """Read what an installer said before it failed."""
    cause = _cause(output)
    text = " ".join("\n".join([*output[-60:], cause]).split())
    advice = next((advice for sign, advice in _ADVICE if re.search(sign, text)), "")
    return InstallFailure(cause, _place(cause, requirements), advice)


def last_lines(output: Sequence[str]) -> str:
    """The end of an output, for an error's message: lines of their own, each with a margin."""
    return "".join(f"\n  | {line}" for line in output[-_MAX_LAST_LINES:])


def _cause(output: Sequence[str]) -> str:
    for read in (_cause_of_uv, _cause_of_pip):
        if lines := read(output):
            return "\n".join(lines[:_MAX_CAUSE_LINES])
    return output[-1].strip() if output else "it said nothing"


def _cause_of_uv(output: Sequence[str]) -> list[str]:
    """From uv's cross (an error) to the end, or its ``error:`` line."""
    return _from(output, lambda line: bool(re.match(r"\s*(×|error:)", line)), is_one_block=True)


def _cause_of_pip(output: Sequence[str]) -> list[str]:
    """pip's ERROR lines; of a conflict also what it lists below."""
    if lines := _from(output, lambda line: line.startswith("ERROR: Cannot install")):
        return [line for line in lines if line.strip()]
    errors = [line for line in output if line.startswith("ERROR: ")]
    named = [line for line in errors if not line.startswith("ERROR: Could not find a version")]
    return [re.sub(r"^ERROR: ", "", line) for line in (named or errors)]


def _from(
    output: Sequence[str], begins: Callable[[str], bool], *, is_one_block: bool = False
) -> list[str]:
    start = next((index for index, line in enumerate(output) if begins(line)), None)
    if start is None:
        return []
    lines = [re.sub(r"^(ERROR: |error: )", "", line.rstrip()) for line in output[start:]]
    if not is_one_block:
        return lines
    plain = [re.sub(r"^\s*(×|╰─▶|├─▶|│)\s?", "", line).strip() for line in lines]
    return [line for line in plain if line]


def _place(cause: str, requirements: Requirements) -> str:
    """The line of the requirement that the cause names first."""
    words = re.findall(r"[A-Za-z0-9][A-Za-z0-9._-]*", cause)
    named = [str(canonicalize_name(word.strip(".-_") or word)) for word in words]
    lines = {line.name: line.where for line in reversed(requirements.lines) if line.name}
    return next((lines[name] for name in named if name in lines), "")
