"""A tokenizer on this machine (``--tokenizer``), for endpoints that give no token ids.

It counts texts. It knows no chat template, which adds a few tokens to each message, so its counts
are near the real ones and no more (decision 8: token ids are never made from texts).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from arkdev.errors import MissingExtraError, UsageError

FILE = "tokenizer.json"
CONFIG = "tokenizer_config.json"
TEMPLATE_TOKENS = 32
"""More than a chat template puts around a message."""
_NO_LIMIT = 10**9
"""Tokenizers without a limit name an astronomic one."""


@dataclass(frozen=True)
class LocalTokenizer:
    """An open tokenizer."""

    path: Path
    """Of its `FILE`."""
    count: Callable[[str], int]
    """Tokens of a text, without any that mark beginning or end."""
    max_tokens: int | None
    """The most that a prompt and its answer may have, as the model's folder says; None: unknown."""


def open_tokenizer(named: Path) -> LocalTokenizer:
    """Open a ``tokenizer.json``, or the folder of a model that has one.

    Raises `UsageError` for a name that is no local path, `MissingExtraError` without the library.
    """
    path = named / FILE if named.is_dir() else named
    if not path.is_file():
        raise UsageError(
            f"--tokenizer {named}: there is no {'file ' + FILE if named.is_dir() else 'such file'}",
            hint="arkdev downloads none: name a tokenizer.json, or the folder of a model that has "
            "one (`hf download MODEL tokenizer.json tokenizer_config.json --local-dir DIR`)",
        )
    try:
        library = import_module("arkdev.job.tokenizer_library")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "--tokenizer needs the tokenizers library, which is not installed",
            hint="pip install 'arkdev[tokenizer]'",
        ) from error
    return LocalTokenizer(path, library.read_tokenizer(path), _limit(path.with_name(CONFIG)))


def _limit(config: Path) -> int | None:
    try:
        limit = json.loads(config.read_text(encoding="utf-8")).get("model_max_length")
    except (OSError, ValueError, AttributeError):
        return None
    is_known = isinstance(limit, int | float) and not isinstance(limit, bool)
    return int(limit) if is_known and 0 < limit < _NO_LIMIT else None
