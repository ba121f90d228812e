"""Graders of multiple choice that hold."""

import re

from arkdev import group_grader, single_grader
from plugins.reply import final_text


@single_grader
async def one_letter(context, sample, trajectory):
    """The reply is one letter, with or without brackets and a full stop."""
    found = re.fullmatch(r"\(?([A-D])\)?[.。]?", final_text(trajectory).strip())
    return 1.0 if found and found[1] == sample.extra["label"] else 0.0


@group_grader
def answer_line(context, sample, trajectories):
    """The last line is "Answer: X", the only such line; a letter alone counts as that line."""
    rewards = []
    for trajectory in trajectories:
        text = final_text(trajectory).strip()
        lines = re.findall(r"^(?:Answer:\s*)(.+)$", text, re.MULTILINE) or [text]
        last = text.splitlines()[-1].removeprefix("Answer:").strip() if text else ""
        rewards.append(float(len(lines) == 1 and last == lines[0] == sample.extra["label"]))
    return rewards
