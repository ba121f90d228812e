"""Make both datasets. From the workspace's root: python -m data.make_data

Sums and differences of the numbers 1 to 20; no result is negative. The two files share no
question, and the fixed seed gives the same files every time.
"""

import json
import random
from pathlib import Path

NUM_TRAIN = 128
NUM_VALIDATION = 32
SEED = 1


def make_lines(questions, *, split):
    """Turn (text, answer) pairs into dataset lines."""
    lines = []
    for number, (text, answer) in enumerate(questions, start=1):
        sample = {
            "messages": [{"role": "user", "content": text}],
            "extra": {"answer": str(answer), "prompt_id": f"{split}-{number:03d}"},
        }
        lines.append(json.dumps(sample) + "\n")
    return lines


def make_splits():
    """Return {file name: its lines}."""
    operands = [(a, b) for a in range(1, 21) for b in range(1, 21)]
    questions = [(f"{a} + {b} = ?", a + b) for a, b in operands]
    questions += [(f"{a} - {b} = ?", a - b) for a, b in operands if a >= b]
    random.Random(SEED).shuffle(questions)
    train = questions[:NUM_TRAIN]
    validation = questions[NUM_TRAIN : NUM_TRAIN + NUM_VALIDATION]
    return {
        "train.jsonl": make_lines(train, split="train"),
        "validation.jsonl": make_lines(validation, split="validation"),
    }


if __name__ == "__main__":
    folder = Path(__file__).parent
    for name, lines in make_splits().items():
        (folder / name).write_text("".join(lines), encoding="utf-8", newline="\n")
        print(f"{name}: {len(lines)} lines")
