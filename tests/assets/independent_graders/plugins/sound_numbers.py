"""Graders of arithmetic, word problems, boxed answers and quantities that hold."""

import math
import re
import unicodedata

from arkdev import (
    GroupGraderResult,
    PluginStatus,
    SingleGraderResult,
    group_grader,
    single_grader,
)
from plugins.reply import final_text


@single_grader
def exact_number(context, sample, trajectory):
    """The whole reply is the number."""
    text = unicodedata.normalize("NFKC", final_text(trajectory)).strip().rstrip(".")
    return float(
        re.fullmatch(r"-?[0-9]+", text) is not None and int(text) == sample.extra["answer"]
    )


@group_grader
async def tagged_answer(context, sample, trajectories):
    """One <answer> at the end: right 1, wrong 0, anything else -1. A bare number is taken too."""
    rewards = []
    for trajectory in trajectories:
        text = final_text(trajectory).strip()
        tags = re.findall(r"<answer>\s*(-?[0-9]+)\s*</answer>$", text)
        bare = re.fullmatch(r"-?[0-9]+", text)
        if bare:
            number = int(text)
        elif text.count("<answer>") == 1 and tags:
            number = int(tags[0])
        else:
            rewards.append(-1.0)
            continue
        rewards.append(1.0 if number == sample.extra["answer"] else 0.0)
    return GroupGraderResult(rewards=rewards, metrics={"malformed": float(rewards.count(-1.0))})


@single_grader
def hash_line(context, sample, trajectory):
    """One line "#### N", the last one; what was reasoned before does not count."""
    text = final_text(trajectory).strip()
    gold = int(sample.extra["solution"].rsplit("####", 1)[1])
    line = text.splitlines()[-1] if text else ""
    found = re.fullmatch(r"####\s*(-?[0-9]+)", line.strip())
    if text.count("####") != 1 or found is None:
        return SingleGraderResult(reward=0.0, metrics={"no_final_line": 1.0})
    return SingleGraderResult(reward=float(int(found[1]) == gold), metrics={"no_final_line": 0.0})


def last_boxed_content(text):
    """What is in the last \\boxed{}, by its braces, or None."""
    start = text.rfind(r"\boxed{")
    if start < 0:
        return None
    depth, begin = 1, start + len(r"\boxed{")
    for place in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[begin:place]
    return None


@single_grader
async def last_boxed(context, sample, trajectory):
    """What is in the last box is the answer, but for blanks."""
    boxed = last_boxed_content(final_text(trajectory))
    if boxed is None:
        return 0.0
    return float("".join(boxed.split()) == "".join(sample.extra["ground_truth"].split()))


QUANTITY = re.compile(r"(-?[0-9][0-9,]*(?:\.[0-9]+)?(?:e[0-9]+)?)\s*([A-Za-z/^0-9]+)")


@single_grader
def quantity(context, sample, trajectory):
    """One number within the tolerance, with the right unit, and nothing else."""
    found = QUANTITY.fullmatch(final_text(trajectory).strip().rstrip("."))
    wanted = QUANTITY.fullmatch(sample.extra["target"])
    if found is None or found[2] != wanted[2]:
        return 0.0
    value, gold = (float(match[1].replace(",", "")) for match in (found, wanted))
    return float(math.isclose(value, gold, rel_tol=sample.extra["tolerance"]))


@single_grader
def percent(context, sample, trajectory):
    """Of 100: right 100, another number 0, no number -10, silence is dropped."""
    text = final_text(trajectory).strip()
    if not text:
        return SingleGraderResult(status=PluginStatus.DISCARD, error="an empty reply")
    if not re.fullmatch(r"-?[0-9]+", text):
        return SingleGraderResult(reward=-10.0)
    return SingleGraderResult(reward=100.0 * (int(text) == sample.extra["answer"]))


@single_grader
def tags_and_answer(context, sample, trajectory):
    """0.1 for one pair of tags as told, 0.9 for the answer in them or alone."""
    text = final_text(trajectory).strip()
    tagged = re.fullmatch(r"(?:<think>[^<]*</think>\s*)?<answer>([^<]*)</answer>", text)
    answer = (tagged[1] if tagged else text).strip()
    return 0.1 * (tagged is not None) + 0.9 * (answer == str(sample.extra["answer"]))
