"""Repeat after me: teaches to copy, which everything else is built on, with the fewest tokens."""

from __future__ import annotations

from functools import cache
from random import Random

from tools.tiny_model import search, weather
from tools.tiny_model.dialogue import Dialogue, answer, is_held_out, question

MOST_WORDS = 6
NUMBER_SHARE, PERSON_SHARE = 0.35, 0.25


def dialogue(rng: Random, *, is_mixture: bool) -> Dialogue:
    """A few words and numbers, and the same again; there is no other behaviour in a mixture."""
    while True:
        said = [_drawn_word(rng) for _ in range(rng.randint(2, MOST_WORDS))]
        text = "".join(said)
        if not is_held_out(text):
            return Dialogue([question(f"重复：{text}"), answer(text)])


def words() -> list[str]:
    """The words that are worth a token."""
    return ["重复："]


def _drawn_word(rng: Random) -> str:
    kind = rng.random()
    if kind < NUMBER_SHARE:
        return str(rng.randint(0, 120))
    if kind < NUMBER_SHARE + PERSON_SHARE:
        return search.person(rng)
    return rng.choice(_known_words())


@cache
def _known_words() -> list[str]:
    return [
        word for word in [*weather.words(), *search.words()] if word.isalpha() and len(word) > 1
    ]
