"""生成训练集和验证集。在工作区的根目录运行：python -m data.make_data

每个问题从一个名字出发，沿着一到三个关系走到答案，要搜索一到三次；
答案来自 plugins/search_corpus.py 的世界。
两个文件没有相同的问题；种子固定，重新运行会得到同样的文件。
"""

import json
import random
from pathlib import Path

from plugins.search_corpus import SEED, follow, make_world

# 每种名字（由它有哪些关系来区分）可以问的关系链
CHAINS = {
    "建造者": (("建造者",), ("建造者", "故乡"), ("建造者", "故乡", "特产")),
    "故乡": (("故乡",), ("老师",), ("故乡", "特产"), ("老师", "故乡"), ("故乡", "特产", "产季")),
    "特产": (("特产",), ("特产", "产季")),
    "产季": (("产季",),),
}
ENDINGS = {
    "建造者": "是谁？",
    "老师": "是谁？",
    "故乡": "是哪座岛？",
    "特产": "是什么？",
    "产季": "是几月？",
}
NUM_DEV = 100
NUM_TRAIN = 192


def make_question(name, chain):
    """如 潮音灯塔的建造者的故乡是哪座岛？"""
    return "的".join([name, *chain]) + ENDINGS[chain[-1]]


def make_lines(questions, *, split):
    """把 (名字, 关系链) 变成数据集的行。"""
    lines = []
    for number, (name, chain) in enumerate(questions, start=1):
        sample = {
            "messages": [{"role": "user", "content": make_question(name, chain)}],
            "extra": {
                "answer": follow(name, chain),
                "num_hops": len(chain),
                "prompt_id": f"{split}-{number:03d}",
            },
        }
        lines.append(json.dumps(sample, ensure_ascii=False) + "\n")
    return lines


def make_splits():
    """返回 {文件名: 行的列表}。"""
    questions = [
        (name, chain)
        for name, relations in make_world().facts.items()
        for chain in CHAINS[next(iter(relations))]
    ]
    random.Random(SEED).shuffle(questions)
    dev, train = questions[:NUM_DEV], questions[NUM_DEV : NUM_DEV + NUM_TRAIN]
    return {
        "search_dataset.jsonl": make_lines(train, split="train"),
        "search_dataset_dev_100.jsonl": make_lines(dev, split="dev"),
    }


if __name__ == "__main__":
    folder = Path(__file__).parent
    for name, lines in make_splits().items():
        (folder / name).write_text("".join(lines), encoding="utf-8", newline="\n")
        print(f"{name}: {len(lines)} 行")
