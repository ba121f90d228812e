"""The right answer of a sample, where its `extra` names one, and a plainly wrong one made of it."""

from __future__ import annotations

import codecs
import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

REFERENCE_KEYS = (
    *("answer", "reference", "reference_answer", "ground_truth", "label", "solution", "target"),
    *("expected", "expected_answer", "correct_answer", "gold", "gold_answer"),
    *("answers", "references", "labels", "targets", "solutions"),
)
"""Keys of `extra` that are taken for the right answer, in this order."""

_TRUE = ("true", "True", "yes", "Yes", "是", "对", "正确")
_FALSE = ("false", "False", "no", "No", "否", "错", "错误")
_LETTER_OPTION = re.compile(r"^\s*[(\[（]?([A-Za-z])[)\].:、．）\]]\s*(\S.*)$", re.MULTILINE)
_FINAL_PART = re.compile(r"####\s*(\S.*?)\s*$", re.DOTALL)
_NUMBER_WITH_UNIT = re.compile(r"[^\w\s]*[-+−]?\d[\d.,:/]*\D{0,8}")
_CJK_FIRST, _CJK_COUNT, _CJK_STEP = 0x4E00, 20_902, 7_919


@dataclass(frozen=True)
class Reference:
    """A right answer: the key that names it, and the ways in which it may be written."""

    key: str
    texts: tuple[str, ...]


def find_reference(extra: Mapping[str, Any] | None, *, key: str | None = None) -> Reference | None:
    """Return the right answer that `extra` names, None when it names none.

    `key` is where to look, ``outer.inner`` for a nested one; else the first of `REFERENCE_KEYS`.
    """
    if not extra:
        return None
    for name in (key,) if key else REFERENCE_KEYS:
        texts = _texts(_value(extra, name))
        if texts:
            return Reference(name, texts)
    return None


def lettered_options(prompt: str) -> dict[str, str]:
    """Return the options that stand on lines of their own, by their letters.

    >>> lettered_options("Which?\\nA. red\\n(B) blue")
    {'A': 'red', 'B': 'blue'}
    """
    return {letter: text.rstrip() for letter, text in _LETTER_OPTION.findall(prompt)}


def with_option(reference: Reference, prompt: str) -> Reference:
    """Return a reference that names an option of the prompt in all the ways in which it may.

    These are its letter, its text, and its place from 0.
    """
    options = lettered_options(prompt)
    given = reference.texts[0].strip()
    letters = list(options)
    of_text = {text: letter for letter, text in options.items()}
    letter = given if given in options else of_text.get(given)
    if letter is None and given.isdecimal() and int(given) < len(letters):
        letter = letters[int(given)]
    if letter is None or len(options) < 2:
        return reference
    texts = dict.fromkeys((*reference.texts, letter, options[letter]))
    return Reference(reference.key, tuple(texts))


def wrong_answer(text: str) -> str:
    """Return an answer of the same shape that is plainly wrong.

    The digits of a number are other digits, letters are other letters; the keys of a JSON object
    stay.

    >>> [wrong_answer(t) for t in ("42", "26 °C", "Paris", '{"age": 41}')]
    ['97', '71 °C', 'Cnevf', '{"age": 96}']
    """
    value = _json_container(text)
    if value is not None:
        return json.dumps(_with_leaves(value, _wrong_leaf), ensure_ascii=False)
    if _NUMBER_WITH_UNIT.fullmatch(text.strip()):
        return "".join(map(_other_digit, text))
    return "".join(map(_other_character, text))


def blanked(text: str) -> str:
    """Return the shape of an answer with nothing in it.

    >>> [blanked(t) for t in ("2024-01-05", "Ann Lee", '{"age": 41}')]
    ['0000-00-00', 'xxx xxx', '{"age": ""}']
    """
    value = _json_container(text)
    if value is not None:
        return json.dumps(_with_leaves(value, lambda _leaf: ""), ensure_ascii=False)
    return "".join("0" if c.isdigit() else "x" if c.isalpha() else c for c in text)


def mentions(text: str, answer: str) -> bool:
    """Whether `answer` stands in `text` by itself, whatever its case and spelling.

    >>> mentions("It is Paris.", "paris"), mentions("126", "26")
    (True, False)
    """
    text, answer = _plain(text), _plain(answer)
    if not answer:
        return False
    before = r"(?<![^\W_])" if answer[0].isascii() and answer[0].isalnum() else ""
    after = r"(?![^\W_])" if answer[-1].isascii() and answer[-1].isalnum() else ""
    return re.search(before + re.escape(answer) + after, text) is not None


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _value(extra: Mapping[str, Any], key: str) -> Any:
    if key in extra:
        return extra[key]
    outer, separator, inner = key.partition(".")
    nested = extra.get(outer)
    return _value(nested, inner) if separator and isinstance(nested, Mapping) else None


def _texts(value: Any) -> tuple[str, ...]:
    """The ways to write a value, the likeliest first; none for what is no answer."""
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, (int, float)):
        return (str(value),)
    if isinstance(value, str):
        final = _FINAL_PART.search(value)
        texts = [value, *([final[1]] if final else [])]
    elif isinstance(value, Mapping) and value:
        texts = [json.dumps(value, ensure_ascii=False)]
    elif isinstance(value, list) and value:
        items = [text for item in value for text in _texts(item)[:1]]
        texts = [*items[:1], "\n".join(items), ", ".join(items)]
        texts.append(json.dumps(value, ensure_ascii=False))
    else:
        return ()
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


def _json_container(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, (dict, list)) else None


def _with_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _with_leaves(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_leaves(inner, change) for inner in value]
    return change(value)


def _wrong_leaf(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, str):
        return wrong_answer(value)
    return json.loads(wrong_answer(str(abs(value))).lstrip("0") or "0")


def _other_digit(character: str) -> str:
    is_plain = character.isascii() and character.isdigit()
    return str((int(character) + 5) % 10) if is_plain else character


def _other_character(character: str) -> str:
    if character.isascii():
        return codecs.encode(_other_digit(character), "rot13")
    place = ord(character) - _CJK_FIRST
    if 0 <= place < _CJK_COUNT:
        return chr(_CJK_FIRST + (place + _CJK_STEP) % _CJK_COUNT)
    return "x" if character.isalpha() else character
