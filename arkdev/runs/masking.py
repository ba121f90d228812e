"""Keep secrets out of run folders: settings masked by their keys, any text by its content."""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

MASK = "***"
MIN_SECRET_LENGTH = 6
"""Shorter literals would also hit ordinary words."""

_SECRET_KEY = re.compile(
    r"(^|_)(api_?key|key|access_?key(_?id)?|token|secret|password|passwd|passphrase"
    r"|credentials?|authorization|auth|cookie)$"
)
_T = TypeVar("_T")
_CAMEL_EDGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_URL_PASSWORD = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def has_secret_name(key: str) -> bool:
    """Whether a setting called `key` holds a secret (`api_key`, not `api_key_env` or `max_tokens`).

    >>> [has_secret_name(key) for key in ("ARK_API_KEY", "accessKey", "max_new_tokens")]
    [True, True, False]
    """
    snake = _CAMEL_EDGE.sub("_", key).replace("-", "_").lower()
    return _SECRET_KEY.search(snake) is not None


def masked_settings(value: Any) -> Any:
    """Copy `value` with secrets masked: under telling keys, and passwords inside URLs.

    An unset secret (None, empty) stays as it is: that it was unset is worth knowing.
    """
    if isinstance(value, dict):
        return {
            key: MASK if item and has_secret_name(str(key)) else masked_settings(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [masked_settings(item) for item in value]
    return masked_urls(value) if isinstance(value, str) else value


def usable_secrets(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return the literals that are long enough to be masked in text, the longest first.

    Of a secret of several lines (a PEM key) each line is one too: what is printed is masked line by
    line, and ``repr`` writes other line ends. A line that is a plain word would hit ordinary words.
    """
    whole = set(secrets)
    lines = {line.strip() for secret in whole for line in secret.splitlines()} - whole
    found = whole | {line for line in lines if not (line.isalpha() and line[1:].islower())}
    return tuple(sorted((s for s in found if len(s) >= MIN_SECRET_LENGTH), key=len, reverse=True))


def secret_values(envs: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables that are secrets.

    A plain word (``LOG_LEVEL=warning``) under an innocent name is none: masking it would hit the
    words of the report.
    """
    return usable_secrets(
        value for name, value in envs.items() if has_secret_name(name) or not value.isalpha()
    )


@functools.lru_cache(maxsize=256)
def forms_of(secrets: tuple[str, ...]) -> tuple[str, ...]:
    """Return `secrets` and what they look like in URLs, JSON and base64, the longest first."""
    return usable_secrets(form for secret in secrets for form in _forms(secret))


def _forms(secret: str) -> Iterator[str]:
    yield secret
    for quoted in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield quoted
        yield re.sub("%..", lambda code: code[0].lower(), quoted)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    data = secret.encode("utf-8", "surrogatepass")
    for before in range(3):  # base64 of a text that the secret is a part of
        begin = (before * 8 + 5) // 6  # characters that hold bits of what is before it
        end = (before + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + data)[begin:end].decode()


def masked_text(text: str, *, secrets: tuple[str, ...]) -> str:
    """Replace each of `secrets` in `text` by `MASK`, also where it is encoded (see `forms_of`)."""
    for form in forms_of(secrets):
        if form in text:
            text = text.replace(form, MASK)
    return text


def masked_bytes(data: bytes, *, secrets: tuple[str, ...]) -> bytes:
    """Replace each of `secrets` in bytes that are no text by `MASK`."""
    for form in forms_of(secrets):
        data = data.replace(form.encode("utf-8", "surrogatepass"), MASK.encode())
    return data


def masked_urls(text: str) -> str:
    """Mask users and passwords in the URLs of a text."""
    return _URL_PASSWORD.sub(MASK, text) if "@" in text else text


def masked_value(value: _T, *, secrets: tuple[str, ...]) -> _T:
    """Copy `value` (text, lists, dicts, dataclasses) with `secrets` masked in all of its text."""
    return _masked(value, secrets) if secrets else value


def _masked(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return masked_text(value, secrets=secrets)
    if isinstance(value, dict):
        return {_masked(key, secrets): _masked(item, secrets) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_masked(item, secrets) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        changes = {field.name: _masked(getattr(value, field.name), secrets) for field in fields}
        return dataclasses.replace(value, **changes)
    return value


def masked_output(text: str, *, secrets: tuple[str, ...]) -> str:
    """Mask, in what a plugin logs or prints, `secrets` and the passwords inside URLs."""
    return masked_urls(masked_text(text, secrets=secrets))
