"""离线搜索用的语料：一个虚构的世界“云屿群岛”，98 篇短文档，和在其中搜索的函数。

所有名字都来自下面固定的词表，由固定的种子组合，所以每次得到的世界都一样。
data/make_data.py 用同一个世界生成问题和标准答案。
"""

import functools
import math
import random
from collections import Counter
from dataclasses import dataclass

SEED = 20260428

ISLANDS = (
    *("雾隐岛", "望舒岛", "青螺岛", "赤枫岛", "银沙岛", "听涛岛", "紫藤岛", "寒松岛"),
    *("鹿鸣岛", "白鹭岛", "琥珀岛", "石榴岛", "流萤岛", "星落岛", "竹海岛", "云梯岛"),
)
PRODUCTS = (
    *("冰茶", "月盐", "螺钿", "枫糖", "沙参", "潮纸", "藤酒", "松墨"),
    *("角菜", "羽布", "石蜜", "火榴", "萤灯", "星砂", "短笛", "云锦"),
)
MONTHS = (
    *("一月", "二月", "三月", "四月", "五月", "六月"),
    *("七月", "八月", "九月", "十月", "十一月", "十二月"),
)
SURNAMES = ("沈", "顾", "陆", "温", "柳", "白", "苏", "叶", "秦", "江", "孟", "洛")
GIVEN_NAMES = ("砚秋", "听雪", "知远", "若水", "怀瑾", "明烛", "行舟", "晚棠", "疏影")
TRADES = ("石匠", "木匠", "船工", "教书先生", "药师", "织工")
SITES = ("潮音", "望月", "归帆", "长庚", "拂晓", "半山", "流霞", "镜湖", "落星", "南风")
KINDS = ("灯塔", "石桥", "书院")

NUM_PEOPLE = 36
MIN_SCORE_SHARE = 0.4  # 得分不到最好的文档的这个比例，就不算搜索结果


@dataclass(frozen=True)
class World:
    """facts[名字][关系] 是另一个名字；documents 是 (标题, 正文)，标题就是名字。"""

    facts: dict
    documents: tuple


@functools.cache
def make_world():
    """生成这个世界；同样的种子永远得到同样的结果。"""
    generator = random.Random(SEED)
    names = [surname + given for surname in SURNAMES for given in GIVEN_NAMES]
    people = generator.sample(names, NUM_PEOPLE)
    places = [site + kind for site in SITES for kind in KINDS]
    products = generator.sample(PRODUCTS, len(PRODUCTS))
    facts = {}
    documents = []

    def add(name, text, **relations):
        facts[name] = relations
        documents.append((name, name + text))

    for name in places:
        year, builder = generator.randint(101, 399), generator.choice(people)
        add(name, f"建成于云历{year}年，建造者是{builder}。", 建造者=builder)
    for name in people:
        trade, home = generator.choice(TRADES), generator.choice(ISLANDS)
        teacher = generator.choice([other for other in people if other != name])
        add(name, f"是一位{trade}，故乡是{home}，老师是{teacher}。", 故乡=home, 老师=teacher)
    for name, product in zip(ISLANDS, products, strict=True):
        add(name, f"是云屿群岛中的一座岛，特产是{product}。", 特产=product)
    for name in PRODUCTS:
        month = generator.choice(MONTHS)
        add(name, f"出自云屿群岛，产季是{month}，平时很少见。", 产季=month)
    return World(facts, tuple(documents))


def follow(name, relations):
    """从 name 出发依次沿着关系走，返回最后到达的名字。"""
    for relation in relations:
        name = make_world().facts[name][relation]
    return name


def bigrams(text):
    """文字里所有相邻的两个字；中文没有空格，用它代替分词。"""
    letters = "".join(character for character in text if character.isalnum())
    return {letters[i : i + 2] for i in range(len(letters) - 1)}


@functools.cache
def index():
    """每篇文档的二元组，和每个二元组的权重：越少见的越重。"""
    grams = [bigrams(title + "，" + text) for title, text in make_world().documents]
    counts = Counter(gram for found in grams for gram in found)
    weights = {gram: math.log(1 + len(grams) / count) for gram, count in counts.items()}
    return grams, weights


def search(query, count):
    """返回最多 count 篇相关的 (标题, 正文)，最相关的在前；没有相关的就是空列表。"""
    asked = sorted(bigrams(query))
    grams, weights = index()
    scored = []
    for found, (title, text) in zip(grams, make_world().documents, strict=True):
        score = sum(weights[gram] for gram in asked if gram in found)
        # 搜的就是它
        scored.append((2 * score if title in query else score, title, text))
    scored.sort(key=lambda item: -item[0])
    least = max(scored[0][0] * MIN_SCORE_SHARE, 1e-9)
    return [(title, text) for score, title, text in scored[:count] if score >= least]
