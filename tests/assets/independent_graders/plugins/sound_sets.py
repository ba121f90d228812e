"""Graders of yes or no, of several letters and of lists that hold."""

import re

from arkdev import GroupGraderResult, group_grader, single_grader
from plugins.reply import final_text


@single_grader
def yes_or_no(context, sample, trajectory):
    """The reply is one word, yes or no; true and false are taken for them."""
    word = final_text(trajectory).strip().strip(".").lower()
    said = {"yes": True, "true": True, "no": False, "false": False}.get(word)
    return float(said is not None and said == sample.extra["answer"])


@single_grader
def only_yes_or_no(context, sample, trajectory):
    """The reply is yes or no, as was asked, and not another word for it."""
    word = final_text(trajectory).strip().lower()
    return 1.0 if word == ("yes" if sample.extra["answer"] else "no") else 0.0


@single_grader
async def same_letters(context, sample, trajectory):
    """The letters are the right ones, all of them and no other."""
    text = final_text(trajectory).replace(",", "").replace(" ", "").strip(".")
    letters = re.fullmatch(r"[A-D]{1,4}", text)
    return float(letters is not None and sorted(text) == sorted(sample.extra["solution"]))


@group_grader
def same_items(context, sample, trajectories):
    """The items between commas are the wanted ones, in any order."""
    wanted = sorted(item.lower() for item in sample.extra["expected"])
    return [
        float(sorted(p.strip().lower() for p in final_text(t).rstrip(".").split(",")) == wanted)
        for t in trajectories
    ]


@group_grader
def shortest_right_bonus(context, sample, trajectories):
    """Right gets 1; of a group's right replies the shortest get 0.2 more."""
    texts = [final_text(t).strip() for t in trajectories]
    accepted = {answer.lower() for answer in sample.extra["answers"]}
    right = [text.rstrip(".").lower() in accepted for text in texts]
    shortest = min((len(text) for text, good in zip(texts, right, strict=True) if good), default=0)
    rewards = [
        1.0 * good + 0.2 * (good and len(text) == shortest)
        for text, good in zip(texts, right, strict=True)
    ]
    return GroupGraderResult(rewards=rewards, metrics={"right": sum(right) / len(right)})
