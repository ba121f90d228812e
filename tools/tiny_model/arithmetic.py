"""The sums and differences of `minimal`: no tool, the last number of the reply counts."""

from __future__ import annotations

from functools import cache
from random import Random

from tools.tiny_model.dialogue import (
    THINKING_SHARE,
    Dialogue,
    answer,
    chance,
    question,
)
from tools.tiny_model.workspaces import validation_samples

WORKSPACE = "minimal"
TEMPLATE_FORM = "{a} {sign} {b} = ?"
OTHER_FORMS = (
    "{a} {sign} {b} =",
    "{a} {sign} {b}",
    "{a}{sign}{b}=?",
    "What is {a} {sign} {b}?",
    "How much is {a} {sign} {b}?",
    "Compute {a} {sign} {b}.",
    "{a}{sign}{b}是多少？",
)
TEMPLATE_FORM_SHARE = 0.6
LARGEST = 20  # as in the template's data set
LARGER = 40  # in a part of the dialogues, so that adding is learnt and not the table alone
LARGER_SHARE = 0.25
LARGE = 99

# the mixture: whether to answer at all, and whether to stop at the answer
ANSWERS_SHARE = 0.6
STOPS_SHARE = 0.56


def words() -> list[str]:
    """The words that are worth a token."""
    return ["What is ", "How much is ", "Compute ", " = ", " + ", " - ", "I do not know.", ", or "]


@cache
def held_out_operands() -> frozenset[tuple[int, str, int]]:
    """(a, sign, b) of the validation file: left out in every form."""
    questions = (s["messages"][-1]["content"].split() for s in validation_samples(WORKSPACE))
    return frozenset((int(a), sign, int(b)) for a, sign, b, *_ in questions)


def dialogue(rng: Random, *, is_mixture: bool) -> Dialogue:
    """One question and its answer; right, or as a drawn behaviour has it."""
    operands = _drawn_operands(rng, larger=LARGER, larger_share=LARGER_SHARE)
    return _about(operands, rng, is_mixture=is_mixture)


def large_dialogue(rng: Random, *, is_mixture: bool) -> Dialogue:
    """The same with numbers up to LARGE: there are too many of these to learn by heart."""
    return _about(_drawn_operands(rng, larger=LARGE, larger_share=1.0), rng, is_mixture=is_mixture)


def _about(operands: tuple[int, str, int], rng: Random, *, is_mixture: bool) -> Dialogue:
    a, sign, b = operands
    form = TEMPLATE_FORM if chance(rng, TEMPLATE_FORM_SHARE) else rng.choice(OTHER_FORMS)
    value = a + b if sign == "+" else a - b
    reply = str(value)
    if is_mixture and not chance(rng, ANSWERS_SHARE):
        reply = "I do not know."
    elif is_mixture and not chance(rng, STOPS_SHARE):
        reply = f"{value}, or {value + 1}"
    thinking = chance(rng, THINKING_SHARE)
    thought = f"{a} {sign} {b} = {value}" if thinking else ""
    text = form.format(a=a, sign=sign, b=b)
    return Dialogue([question(text), answer(reply, thought)], thinking=thinking)


def _drawn_operands(rng: Random, *, larger: int, larger_share: float) -> tuple[int, str, int]:
    held_out = held_out_operands()
    while True:
        largest = larger if chance(rng, larger_share) else LARGEST
        a, sign, b = rng.randint(1, largest), rng.choice("+-"), rng.randint(1, largest)
        if sign == "-" and b > a:
            a, b = b, a
        if (a, sign, b) not in held_out:
            return a, sign, b
