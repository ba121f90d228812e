"""What building an image asks of a container engine (`arkdev.faas_emulator.images.image`).

The engine's own leaf provides it, for Docker and for Podman's socket. All calls block and are made
in a thread; each may raise `EngineError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Protocol


@dataclass(frozen=True)
class EngineImage:
    """An image that the engine has."""

    id: str
    """``sha256:...``."""
    tags: tuple[str, ...]
    platform: str
    """``os/architecture``, as ``linux/amd64``."""
    created: str
    """When it was made, as the engine says it: ISO 8601 in UTC, so that texts sort by time."""


class BuildStream(Protocol):
    """What the engine says while it builds or pulls: its own JSON messages, one at a time.

    ``stream`` and ``status`` hold output, ``error`` (and ``errorDetail``) why it failed, ``aux``
    the id of the image. A message with an error is the last one; it does not raise.
    """

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Yield the messages in their order."""
        ...

    def close(self) -> None:
        """Hang up, upon which the engine ends the build.

        It is called by another thread than the one that waits for a message, which returns then
        without a further one. Idempotent.
        """
        ...


class ImageEngine(Protocol):
    """A container engine, as far as images go."""

    def platform(self) -> str:
        """Tell the engine's own platform: ``linux/amd64``, ``linux/arm64``."""
        ...

    def image(self, reference: str) -> EngineImage | None:
        """Find an image by its tag or id among those that the engine has; None without one."""
        ...

    def images(self, *, label: str) -> list[EngineImage]:
        """List the tagged images that have the label ``name=value``."""
        ...

    def pull(self, reference: str, *, platform: str) -> BuildStream:
        """Fetch an image from its registry."""
        ...

    def build(
        self, context: IO[bytes], *, tag: str, platform: str, build_args: Mapping[str, str]
    ) -> BuildStream:
        """Build the ``Dockerfile`` of a context (a tar) and tag the image.

        Intermediate containers are removed, also after a failure.
        """
        ...

    def remove_image(self, image_id: str) -> bool:
        """Remove an image and what only it needs; False when a container still uses it.

        Of an image that is gone already: True.
        """
        ...
