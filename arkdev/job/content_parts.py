"""Parts of a message's content: text, pictures and other media (SURFACE X-37, Y-09)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

TEXT = "text"
_LINKED_MEDIA = ("image_url", "video_url")
_KNOWN_TYPES = (TEXT, *_LINKED_MEDIA, "input_audio", "file")
_ROLES_WITH_MEDIA = ("system", "user")
_SCHEMES = ("http://", "https://", "data:")


class SampleProblem(ValueError):
    """A line is no sample; the message names the field."""


def check_part(
    part: Mapping[str, Any], *, role: str, place: str, warn: Callable[[str], None]
) -> None:
    """Check a part that has a type; `warn` gets what not every model takes.

    Raises `SampleProblem` for a part without what its type promises.
    """
    kind = part["type"]
    if kind == TEXT:
        if not isinstance(part.get("text"), str):
            raise SampleProblem(
                f'{place} has no text; {{"type": "text", "text": "..."}} is expected'
            )
        return
    if kind not in _KNOWN_TYPES:
        warn(f"a part has the type {kind!r}; the known ones are {', '.join(_KNOWN_TYPES)}")
    elif role not in _ROLES_WITH_MEDIA:
        warn(f"a {role} message has a part of type {kind!r}; media belong in system and user ones")
    if kind in _LINKED_MEDIA:
        _check_link(part, kind=kind, place=place, warn=warn)


def _check_link(
    part: Mapping[str, Any], *, kind: str, place: str, warn: Callable[[str], None]
) -> None:
    link = part.get(kind)
    url = link.get("url") if isinstance(link, dict) else None
    if not isinstance(url, str) or not url:
        raise SampleProblem(
            f'{place} has no {kind}.url; "{kind}": {{"url": "..."}} is expected beside its type'
        )
    if not url.lower().startswith(_SCHEMES):
        warn(f"a part's {kind}.url is no http, https or data URL, so that no model can read it")
