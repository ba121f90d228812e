"""Find a sum in a sentence, English or Chinese, and work it out exactly."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

_WORDS = (
    (re.compile(r"加上|加"), "+"),
    (re.compile(r"减去|减"), "-"),
    (re.compile(r"乘以|乘上|乘|×|✕"), "*"),
    (re.compile(r"除以|÷"), "/"),
    (re.compile(r"\b(?:plus|added to)\b", re.IGNORECASE), "+"),
    (re.compile(r"\bminus\b", re.IGNORECASE), "-"),
    (re.compile(r"\b(?:times|multiplied by)\b|(?<=\d)\s*x\s*(?=\d)", re.IGNORECASE), "*"),
    (re.compile(r"\bdivided by\b", re.IGNORECASE), "/"),
    (re.compile(r"[−–]"), "-"),
    (re.compile(r"(?<=\d),(?=\d{3}(?!\d))"), ""),
)
# repetitions are bounded, so that a long text of digits or brackets costs linear time
_NUMBER = r"\d{1,18}(?:\.\d{1,9})?"
_CHAIN = re.compile(
    rf"(?<![\w.])[-( ]{{0,8}}{_NUMBER}[ )]{{0,8}}(?:[-+*/][-( ]{{0,8}}{_NUMBER}[ )]{{0,8}})+"
    r"(?![\w.]{0,8}\d)"
)
MAX_EXPRESSION_CHARS = 200

_PAIR = (
    (r"(?:sum of|total of)", "+"),
    (r"(?:difference (?:between|of))", "-"),
    (r"(?:product of)", "*"),
    (r"(?:quotient of)", "/"),
)
_ENGLISH_PAIRS = tuple(
    (re.compile(rf"{words}\s+({_NUMBER})\s*(?:and|,)\s*({_NUMBER})", re.IGNORECASE), operator)
    for words, operator in _PAIR
)
_CHINESE_PAIR = re.compile(
    rf"(?<!\d)({_NUMBER})\s*[和与跟]\s*({_NUMBER})\s*[的之]?\s*(相[加减乘除]|[和差积商]|乘积)"
)
_CHINESE_OPERATOR = {"和": "+", "加": "+", "差": "-", "减": "-", "积": "*", "乘": "*"}
_TOKEN = re.compile(rf"{_NUMBER}|[-+*/()]")
_HINT = re.compile(r"\d")
_CHINESE_NUMBER = re.compile(r"[零一二两三四五六七八九十百]+")
_CHINESE_SUM = re.compile(r"[零一二两三四五六七八九十百]\s*(?:加|减|乘|除以)")
_DIGITS = {c: n for n, c in enumerate("零一二三四五六七八九")} | {"两": 2}


def find_expression(text: str) -> str | None:
    """Return the sum in `text` with ``+ - * /`` and digits, or None when there is none."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)  # full-width digits, operators and brackets
    if _CHINESE_SUM.search(text):
        text = _CHINESE_NUMBER.sub(lambda m: str(_chinese_number(m.group())), text)
    if not _HINT.search(text):
        return None
    if pair := _CHINESE_PAIR.search(text):
        return f"{pair[1]} {_CHINESE_OPERATOR.get(pair[3][-1], '/')} {pair[2]}"
    for pattern, replacement in _WORDS:
        text = pattern.sub(replacement, text)
    for pattern, operator in _ENGLISH_PAIRS:
        if match := pattern.search(text):
            return f"{match[1]} {operator} {match[2]}"
    chains = [match.group() for match in _CHAIN.finditer(" ".join(text.split()))]
    usable = [
        _balanced(chain)
        for chain in chains
        if len(chain) <= MAX_EXPRESSION_CHARS and not _is_date(chain)
    ]
    return max(usable, key=len, default=None)


def evaluate(expression: str) -> Fraction | None:
    """Return the value of `expression`, or None when it has none (a division by zero)."""
    try:
        return _Parser(_TOKEN.findall(expression)).value()
    except (ZeroDivisionError, IndexError, ValueError):
        return None


def as_text(value: Fraction) -> str:
    """Write `value` as people do: 19, -3, 2.5, 0.3333."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.4f}".rstrip("0").rstrip(".")


def _is_date(chain: str) -> bool:
    return re.fullmatch(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}", chain.replace(" ", "")) is not None


def _balanced(chain: str) -> str:
    """Drop brackets that belong to the sentence around the sum."""
    chain = chain.strip()
    while chain.count("(") > chain.count(")"):
        chain = chain.replace("(", "", 1)
    while chain.count(")") > chain.count("("):
        chain = chain[::-1].replace(")", "", 1)[::-1]
    return chain.strip()


def _chinese_number(text: str) -> int:
    total, digit = 0, 0
    for char in text:
        if char in ("十", "百"):
            total += (digit or 1) * (10 if char == "十" else 100)
            digit = 0
        else:
            digit = digit * 10 + _DIGITS[char]
    return total + digit


class _Parser:
    """Recursive descent over numbers, + - * /, brackets and a leading minus."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def value(self) -> Fraction:
        result = self._sum()
        if self._at != len(self._tokens):
            raise ValueError("text after the sum")
        return result

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _sum(self) -> Fraction:
        result = self._product()
        while self._peek() in ("+", "-"):
            result = result + self._product() if self._next() == "+" else result - self._product()
        return result

    def _product(self) -> Fraction:
        result = self._atom()
        while self._peek() in ("*", "/"):
            result = result * self._atom() if self._next() == "*" else result / self._atom()
        return result

    def _atom(self) -> Fraction:
        token = self._next()
        if token == "-":
            return -self._atom()
        if token == "(":
            result = self._sum()
            if self._next() != ")":
                raise ValueError("bracket not closed")
            return result
        return Fraction(token)
