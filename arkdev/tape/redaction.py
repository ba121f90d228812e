"""What must not reach a tape: values under telling names, and known secrets wherever they stand.

The same redaction is applied to a request before it is looked for on a tape; `same` then takes a
masked place for equal to anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from arkdev.runs.masking import MASK, has_secret_name, masked_text, usable_secrets

_SECRET_HEADERS = re.compile(r"authorization|cookie|signature|(^|-)(sign|session-id)$")
_MAX_DEPTH = 100

Change = Callable[[Any], Any]


class Redaction:
    """Masks what is secret; `secrets` are literals."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = usable_secrets(secrets)

    def text(self, text: str) -> str:
        """Mask the known secrets in a text."""
        return masked_text(text, secrets=self._secrets)

    def literals(self, value: Any) -> Any:
        """Copy JSON with the known secrets masked."""
        return self._walk(value, by_name=False)

    def named(self, value: Any) -> Any:
        """Copy JSON with the known secrets masked, and every text or number under a telling key."""
        return self._walk(value, by_name=True)

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Mask the headers that carry keys, tokens, cookies and signatures."""
        return {
            name: MASK if is_secret_header(name) else self.text(value)
            for name, value in headers.items()
        }

    def url(self, url: str) -> str:
        """Mask user and password, the values of telling parameters, and known secrets."""
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")
        netloc = f"{MASK}@{host[2]}" if host[1] else parts.netloc
        query = self._form(parts.query)
        return self.text(urlunsplit((parts.scheme, netloc, parts.path, query, parts.fragment)))

    def body(self, text: str, *, content_type: str) -> str:
        """Mask the text of an HTTP body, by what it is: JSON, a form, or anything else."""
        if "x-www-form-urlencoded" in content_type:
            return self.text(self._form(text))
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return self.text(text)
        if not isinstance(document, (dict, list)):
            return self.text(text)
        masked = self.named(document)
        return text if masked == document else json.dumps(masked, ensure_ascii=False)

    def _form(self, text: str) -> str:
        fields = parse_qsl(text, keep_blank_values=True)
        if not any(value and has_secret_name(name) for name, value in fields):
            return text
        masked = [(name, MASK if has_secret_name(name) else value) for name, value in fields]
        return urlencode(masked, safe=MASK)

    def _walk(self, value: Any, *, by_name: bool, depth: int = 0) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if depth > _MAX_DEPTH:
            return value
        if isinstance(value, dict):
            return {
                self.text(str(key)): MASK
                if by_name and _holds_secret(str(key), item)
                else self._walk(item, by_name=by_name, depth=depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self._walk(item, by_name=by_name, depth=depth + 1) for item in value]
        return value


def _holds_secret(key: str, value: Any) -> bool:
    is_scalar = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    return is_scalar and bool(value) and has_secret_name(key)


def is_secret_header(name: str) -> bool:
    """Tell whether a header, in lower case, carries what nobody else may know."""
    return _SECRET_HEADERS.search(name) is not None or has_secret_name(name)


def has_mask(value: Any) -> bool:
    """Tell whether anything in a JSON value was masked."""
    return MASK in json.dumps(value, ensure_ascii=False)


def same(recorded: Any, now: Any) -> bool:
    """Compare JSON values; what is masked on the tape is equal to any text."""
    if isinstance(recorded, str):
        if MASK not in recorded:
            return bool(recorded == now)
        pattern = ".*".join(re.escape(part) for part in recorded.split(MASK))
        return re.fullmatch(pattern, str(now), flags=re.DOTALL) is not None
    if isinstance(recorded, dict):
        return (
            isinstance(now, dict)
            and recorded.keys() == now.keys()
            and all(same(item, now[key]) for key, item in recorded.items())
        )
    if isinstance(recorded, list):
        return isinstance(now, list) and len(recorded) == len(now) and all(map(same, recorded, now))
    return type(recorded) is type(now) and bool(recorded == now)
