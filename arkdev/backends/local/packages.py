"""What the extra ``local`` installs, looked for without importing it."""

from __future__ import annotations

from importlib.util import find_spec

from arkdev.errors import MissingExtraError

PACKAGES = ("torch", "transformers", "peft", "safetensors")
"""What loading a model needs, to sample from it or to train it."""


def require_packages(*, purpose: str, names: tuple[str, ...] = PACKAGES) -> None:
    """Raise `MissingExtraError` where one of `names` is not installed; `purpose` begins it."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{purpose} needs {', '.join(missing)}, which this environment lacks",
            hint="pip install 'arkdev[local]'",
        )
