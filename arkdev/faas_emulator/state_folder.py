"""Where arkdev keeps what outlives a command and belongs to one user of one machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def state_folder() -> Path:
    """Return this user's: ``arkdev`` in ``$XDG_STATE_HOME``, else in ``~/.local/state``.

    On macOS it is in ``~/Library/Application Support``.
    """
    return state_folder_of(os.environ, system=sys.platform, home=Path.home())


def state_folder_of(environ: Mapping[str, str], *, system: str, home: Path) -> Path:
    """Return the folder of a user; `system` is `sys.platform`."""
    if (given := environ.get("XDG_STATE_HOME", "")) and Path(given).is_absolute():
        return Path(given) / "arkdev"
    if system == "darwin":
        return home / "Library" / "Application Support" / "arkdev"
    return home / ".local" / "state" / "arkdev"
