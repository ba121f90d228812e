"""What pip and uv say when they cannot install: the cause, the requirement's line, advice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from arkdev.faas_emulator.requirement_files.requirements import Requirements

_MAX_CAUSE_LINES = 12
_MAX_LAST_LINES = 8
_MAX_VERSIONS = 5
_MAX_WIDTH = 300
"""Characters of a line."""


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
        r"No matching distribution|was not found in the p|there (is|are) no version",
        "check the name and the version; `arkdev freeze` writes those that are installed here",
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
    (r"No space left on device", "make room on the disk"),
    (r"No module named pip", "use a base image that has Python with pip"),
)


def install_failure(output: Sequence[str], requirements: Requirements) -> InstallFailure:
    """Read what an installer said before it failed."""
    cause = _cause(output)
    text = " ".join("\n".join([*output[-60:], cause]).split())
    advice = next((advice for sign, advice in _ADVICE if re.search(sign, text)), "")
    return InstallFailure(cause, _place(cause, requirements), advice)


def last_lines(output: Sequence[str], *, but_not: str = "") -> str:
    """The end of an output, for an error's message: lines of their own, each with a margin.

    Lines that stand in `but_not`, which the message has already, are left out.
    """
    said = {_plain(line) for line in but_not.splitlines()}
    lines = [shown for line in output if _plain(shown := _shortened(line)) not in said]
    return "".join(f"\n  | {line}" for line in lines[-_MAX_LAST_LINES:])


def _plain(line: str) -> str:
    """A line without what the installer puts before its words."""
    return re.sub(r"^\s*(×|╰─▶|├─▶|│|error:|ERROR:)?\s*", "", line).strip()


def _shortened(line: str) -> str:
    return line if len(line) <= _MAX_WIDTH else f"{line[:_MAX_WIDTH]}..."


def _cause(output: Sequence[str]) -> str:
    for read in (_cause_of_uv, _conflict_of_pip, _errors_of_pip):
        if lines := [_shortened(line) for line in dict.fromkeys(read(output))]:
            return "\n".join(lines[:_MAX_CAUSE_LINES])
    return _shortened(output[-1].strip()) if output else "it said nothing"


def _from(output: Sequence[str], sign: str) -> Sequence[str]:
    """The lines from the first one on that matches."""
    start = next((n for n, line in enumerate(output) if re.match(sign, line)), len(output))
    return output[start:]


def _cause_of_uv(output: Sequence[str]) -> Iterator[str]:
    """From uv's cross, or its ``error:``, to the end, without what it draws."""
    for line in _from(output, r"\s*×|error: "):
        if text := _plain(line):
            yield text


def _conflict_of_pip(output: Sequence[str]) -> Iterator[str]:
    """pip's sentence on versions that do not go together, and who asks for what."""
    for line in _from(output, "ERROR: Cannot install"):
        if line.startswith("To fix this"):
            return
        if line and not line.startswith("ERROR: ResolutionImpossible"):
            yield line.removeprefix("ERROR: ")


def _errors_of_pip(output: Sequence[str]) -> Iterator[str]:
    """pip's ``ERROR:`` lines, the versions that there are shortened to the newest."""
    for line in output:
        if line.startswith("ERROR: "):
            listed = re.search(r"\(from versions: (.*)\)", line)
            if listed and listed[1] != "none":
                newest = ", ".join(listed[1].split(", ")[-_MAX_VERSIONS:])
                line = line.replace(listed[0], f"(the newest there are: {newest})")
            yield line.removeprefix("ERROR: ")


def _place(cause: str, requirements: Requirements) -> str:
    """The line of the requirement that the cause names first."""
    words = re.findall(r"[A-Za-z0-9][A-Za-z0-9._-]*", cause)
    named = [str(canonicalize_name(word.strip(".-_") or word)) for word in words]
    lines = {line.name: line.where for line in reversed(requirements.lines) if line.name}
    return next((lines[name] for name in named if name in lines), "")
