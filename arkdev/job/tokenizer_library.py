"""The only place that imports the `tokenizers` library; loaded by `arkdev.job.local_tokenizer`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer  # noqa: TID253 (a leaf, loaded lazily)

from arkdev.errors import UsageError


def read_tokenizer(path: Path) -> Callable[[str], int]:
    """Return what counts the tokens of a text. Raises `UsageError` for a file that is none."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no other kind
        raise UsageError(
            f"no tokenizer of the tokenizers library: {error}",
            where=str(path),
            hint="the file tokenizer.json of a model's repository is one",
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count
