"""生成训练集和验证集。在工作区的根目录运行：python -m data.make_data

问题由城市、单位、问法三个固定的词表组合而成，答案来自天气工具本身。
两个文件没有相同的问题；种子固定，重新运行会得到同样的文件。
"""

import json
import random
from pathlib import Path

from plugins.weather_tool import UNITS, WEATHER, reading

FORMS = (
    "{city}现在多少{unit}？",
    "请问{city}的气温是多少{unit}？",
    "用{unit}告诉我{city}的气温。",
)
NUM_VALIDATION = 32
SEED = 20260428


def make_lines(questions, *, split):
    """把 (城市, 单位, 问法) 变成数据集的行。"""
    lines = []
    for number, (city, unit, form) in enumerate(questions, start=1):
        sample = {
            "messages": [{"role": "user", "content": form.format(city=city, unit=unit)}],
            "extra": {"answer": reading(city, unit), "prompt_id": f"{split}-{number:03d}"},
        }
        lines.append(json.dumps(sample, ensure_ascii=False) + "\n")
    return lines


def make_splits():
    """返回 {文件名: 行的列表}。"""
    questions = [(city, unit, form) for city in WEATHER for unit in UNITS for form in FORMS]
    random.Random(SEED).shuffle(questions)
    validation, train = questions[:NUM_VALIDATION], questions[NUM_VALIDATION:]
    return {
        "mcj_rollout_test_dataset.jsonl": make_lines(train, split="train"),
        "mcj_rollout_validation_dataset.jsonl": make_lines(validation, split="validation"),
    }


if __name__ == "__main__":
    folder = Path(__file__).parent
    for name, lines in make_splits().items():
        (folder / name).write_text("".join(lines), encoding="utf-8", newline="\n")
        print(f"{name}: {len(lines)} 行")
