"""What a container engine says while it builds, made readable: our steps, and the lines in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_STEP = re.compile(r"step (\d+)/\d+\s*:", re.IGNORECASE)
_CACHED = re.compile(r"\s*-+> Using cache")
_NOISE = re.compile(
    r"\s*-+> |Removing intermediate container |Successfully (built|tagged) |COMMIT\b|"
    r"Untagged: |Deleted: "
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""Docker writes what a command says on stderr in red."""
_LAYER_PROGRESS = ("Downloading", "Extracting", "Verifying Checksum", "Waiting", "Pulling fs layer")


class BuildOutput:
    """Takes an engine's messages in their order and tells `on_output` of each readable line.

    Docker numbers the instructions of a Dockerfile, Podman too; several stand for one step of ours.
    """

    def __init__(self, steps: Sequence[str], *, on_output: Callable[[str], None]) -> None:
        """`steps`: for each instruction, in order, the words for it; the same words: one step."""
        self._steps = steps
        self._numbers = {words: number for number, words in enumerate(dict.fromkeys(steps), 1)}
        self._on_output = on_output
        self._instruction = -1
        self._shown = ""
        """The words that were printed last."""
        self._partial = ""
        self._cached: set[int] = set()
        self._is_cached = False
        self.lines: list[str] = []
        """What the step that runs has written."""
        self.error = ""
        """Why the engine gave up; empty while it has not."""

    @property
    def step(self) -> str:
        """The words for the instruction that runs, or failed; empty before the first."""
        return self._steps[self._instruction] if self._instruction >= 0 else ""

    def were_cached(self, step: str) -> bool:
        """Tell whether all instructions of a step came from the engine's cache."""
        return all(n in self._cached for n, words in enumerate(self._steps) if words == step)

    def take(self, message: Mapping[str, Any]) -> None:
        """Take one message."""
        if error := message.get("error"):
            detail = message.get("errorDetail")
            found = detail.get("message") if isinstance(detail, dict) else None
            self.error = str(found or error).strip()
            self._end_line()
        elif isinstance(status := message.get("status"), str):
            self._take_status(status, layer=str(message.get("id") or ""))
        elif isinstance(text := message.get("stream"), str):
            *lines, self._partial = (self._partial + text).split("\n")
            for line in lines:
                self._take_line(line)

    def finish(self) -> None:
        """Tell of the last step, once the engine has ended."""
        self._end_line()
        self._end_step()

    def _end_line(self) -> None:
        line, self._partial = self._partial, ""
        if line:
            self._take_line(line)

    def _take_status(self, status: str, *, layer: str) -> None:
        if not (layer and status.startswith(_LAYER_PROGRESS)):
            self._on_output(f"    {layer + ': ' if layer else ''}{status}")

    def _take_line(self, raw: str) -> None:
        line = _COLOUR.sub("", raw).rstrip()
        if started := _STEP.match(line):
            self._end_step()
            self._instruction = min(int(started[1]), len(self._steps)) - 1
            self._is_cached = False
            self.lines = []
        elif _CACHED.match(line):
            self._is_cached = True
            self._cached.add(self._instruction)
        elif re.match(r"\s*-+> Running in", line):
            self._show_step()
        elif line and not _NOISE.match(line):
            self._show_step()
            self.lines.append(line)
            self._on_output(f"    {line}")

    def _end_step(self) -> None:
        """Show a step that wrote nothing, after its last instruction or its first new one."""
        if self._instruction < 0 or self._shown == self.step:
            return
        following = self._steps[self._instruction + 1 : self._instruction + 2]
        if not self._is_cached:
            self._show_step()
        elif [self.step] != list(following):
            self._show_step(note=" (cached)")

    def _show_step(self, *, note: str = "") -> None:
        if self._shown != self.step:
            self._shown = self.step
            number = self._numbers[self.step]
            self._on_output(f"  [{number}/{len(self._numbers)}] {self.step}{note}")
