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

from arkdev.runs.masking import (
    MASK,
    MIN_SECRET_LENGTH,
    has_secret_name,
    masked_bytes,
    masked_text,
    usable_secrets,
)

_SECRET_HEADERS = re.compile(
    r"authorization|cookie|signature|(^|-)(sign|session|session-id|access|jwt)$"
)
_SECRET_NAMES = re.compile(r"(^|_)(sig|sign|signature|ak|sk|pwd|pass|session_?id|jwt|bearer)$")
"""Names on the wire, beside those of settings: as variables (`PWD`) they hold no secret."""
_PLURALS = re.compile(r"(^|_)(tokens|api_?keys|secrets|passwords)$")
_GROUPS = re.compile(r"(^|_)credentials?$")
_KEYS = re.compile(r"^((?!api|access|secret|private).*_)?key$")
"""Names under which a service rather sends an identifier (`PROJ-17`) than a secret."""
_PASSWORDS = re.compile(r"secret|pass")
_CAMEL_EDGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MIN_KEY_LENGTH = 16
_MAX_DEPTH = 100

Change = Callable[[Any], Any]
Learn = Callable[[str], None]


class Redaction:
    """Masks what is secret; `secrets` are literals.

    Of an answer what telling names hold is masked only where it looks like a secret: the plugin
    goes on with it. It is passed to `learn`, to be masked in what the plugin sends then.
    """

    def __init__(self, secrets: Iterable[str], *, learn: Learn | None = None) -> None:
        self._secrets = usable_secrets(secrets)
        self._learn = learn

    def knowing(self, secrets: Iterable[str], *, learn: Learn) -> Redaction:
        """Return a redaction that masks `secrets` as well, and tells of those in answers."""
        return Redaction([*self._secrets, *secrets], learn=learn)

    def text(self, text: str) -> str:
        """Mask the known secrets in a text."""
        return masked_text(text, secrets=self._secrets)

    def data(self, data: bytes) -> bytes:
        """Mask the known secrets in bytes that are no text."""
        return masked_bytes(data, secrets=self._secrets)

    def literals(self, value: Any) -> Any:
        """Copy JSON with the known secrets masked."""
        return self._walk(value, masks=_nothing)

    def named(self, value: Any) -> Any:
        """Copy JSON with the known secrets masked, and every text or number under a telling key."""
        return self._walk(value, masks=_holds_secret)

    def answered(self, value: Any) -> Any:
        """Copy the JSON of an answer, masked as it is said above."""
        return self._walk(value, masks=self._learned)

    def headers(self, headers: Mapping[str, str], *, is_answer: bool = False) -> dict[str, str]:
        """Mask the headers that carry keys, tokens, cookies and signatures."""
        secret = {name: value for name, value in headers.items() if is_secret_header(name)}
        for name, value in secret.items():
            if is_answer and "cookie" not in name:
                self._learned(name, value)
        return {
            name: MASK if name in secret else self.text(value) for name, value in headers.items()
        }

    def url(self, url: str) -> str:
        """Mask user and password, the values of telling parameters, and known secrets."""
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")
        netloc = f"{MASK}@{host[2]}" if host[1] else parts.netloc
        query = self._form(parts.query)
        return self.text(urlunsplit((parts.scheme, netloc, parts.path, query, parts.fragment)))

    def body(self, text: str, *, content_type: str, is_answer: bool = False) -> str:
        """Mask the text of an HTTP body, by what it is: JSON, lines of it, a form, or any other."""
        if "x-www-form-urlencoded" in content_type:
            return self.text(self._form(text))
        masks = self._learned if is_answer else _holds_secret
        whole = self._json_text(text, masks=masks)
        if whole is not None:
            return whole
        lines = text.splitlines(keepends=True)
        masked = [self._json_text(line.strip(), masks=masks) for line in lines]
        return "".join(
            self.text(line) if now is None or now == line.strip() else now + _line_end(line)
            for line, now in zip(lines, masked, strict=True)
        )

    def _json_text(self, text: str, *, masks: Masks) -> str | None:
        """Mask the text of a JSON object or list; None when it is none."""
        if not text.lstrip().startswith(("{", "[")):
            return None
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return None
        masked = self._walk(document, masks=masks)
        return text if masked == document else json.dumps(masked, ensure_ascii=False)

    def _form(self, text: str) -> str:
        fields = parse_qsl(text, keep_blank_values=True)
        if not any(value and _is_secret_name(name) for name, value in fields):
            return text
        masked = [(name, MASK if _is_secret_name(name) else value) for name, value in fields]
        return urlencode(masked, safe=MASK)

    def _learned(self, key: str, value: Any) -> bool:
        """Tell whether an answer's value is a secret, and learn it."""
        if not isinstance(value, str) or not _holds_secret(key, value):
            return False
        name = _snake(key)
        least = _MIN_KEY_LENGTH if _KEYS.search(name) else MIN_SECRET_LENGTH
        has_digit = any(character.isdigit() for character in value)
        if len(value) < least or not (has_digit or _PASSWORDS.search(name)):
            return False
        if self._learn is not None:
            self._learn(value)
        return True

    def _walk(self, value: Any, *, masks: Masks, depth: int = 0) -> Any:
        if isinstance(value, str):
            # JSON as text: a tool call's arguments, an MCP tool's result
            masked = None if masks is _nothing else self._json_text(value, masks=masks)
            return self.text(value if masked is None else masked)
        if depth > _MAX_DEPTH:
            return value
        if isinstance(value, dict):
            return {
                self.text(str(key)): self._item(str(key), item, masks=masks, depth=depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self._walk(item, masks=masks, depth=depth + 1) for item in value]
        return value

    def _item(self, key: str, item: Any, *, masks: Masks, depth: int) -> Any:
        if masks(key, item):
            return MASK
        if masks is not _nothing:
            name = _snake(key)
            if isinstance(item, list) and _PLURALS.search(name):
                return [
                    MASK if _has_digits(one) and masks("token", one) else one
                    for one in self._walk(item, masks=masks, depth=depth)
                ]
            if isinstance(item, dict) and _GROUPS.search(name):
                item = {name: MASK if masks("password", one) else one for name, one in item.items()}
        return self._walk(item, masks=masks, depth=depth)


Masks = Callable[[str, Any], bool]


def _nothing(_key: str, _value: Any) -> bool:
    return False


def _holds_secret(key: str, value: Any) -> bool:
    is_text = isinstance(value, str)
    if not value or isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return False
    return has_secret_name(key) or (is_text and _is_secret_name(key))


def _is_secret_name(key: str) -> bool:
    return has_secret_name(key) or _SECRET_NAMES.search(_snake(key)) is not None


def _snake(key: str) -> str:
    return _CAMEL_EDGE.sub("_", key).replace("-", "_").lower()


def _has_digits(value: Any) -> bool:
    """Tell a token from a word."""
    is_long = isinstance(value, str) and len(value) >= MIN_SECRET_LENGTH
    return is_long and any(character.isdigit() for character in value)


def _line_end(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


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
