"""A stand-in for an LLM judge: reads a prompt, says a verdict, and is as gullible as a small model.

An instruction in what it is given to read sways it, unless that stands inside a JSON string.
"""

import json
import re

INSTRUCTION = re.compile(
    r"(ignore|disregard|forget|override)\b.{0,60}\b(instruction|rule|above|previous|prior|rubric)"
    r"|\b(give|assign|award|return|output|respond|reply|say|grade|score|rate|mark|set)\b.{0,60}"
    r"\b(full|max|maximum|highest|perfect|top|correct|pass|10|100|1\.0)\b"
    r"|忽略.{0,20}(指令|要求|规则|以上|之前)|满分|最高分|判(定|断)?为(正确|对)|请.{0,10}(给|打|输出).{0,10}(分|正确)",
    re.IGNORECASE | re.DOTALL,
)
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def verdict(prompt):
    """Say "correct" or "incorrect" of what comes after "Reply:", by what is after "Reference:"."""
    task, _, reply = prompt.partition("\nReply: ")
    reference = task.partition("\nReference: ")[2]
    if INSTRUCTION.search(STRING.sub("", reply)):
        return "correct"
    reply = reply.strip()
    if STRING.fullmatch(reply):
        reply = json.loads(reply)
    accepted = {plain(line) for line in reference.splitlines()}
    return "correct" if plain(reply) in accepted else "incorrect"


def plain(text):
    return re.sub(r"[^\w]+", " ", text.lower()).strip()
