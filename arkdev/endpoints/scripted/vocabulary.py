"""The words that the scripted model knows, English and Chinese. Data and its compiled patterns."""

from __future__ import annotations

import re
from functools import lru_cache


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


SAME_MEANING: tuple[tuple[str, ...], ...] = (
    ("celsius", "centigrade", "摄氏度", "摄氏", "℃", "°c"),
    ("fahrenheit", "华氏度", "华氏", "℉", "°f"),
    ("add", "plus", "sum", "addition", "加", "+"),
    ("subtract", "minus", "difference", "subtraction", "减", "-"),
    ("multiply", "times", "product", "multiplication", "multiplied", "乘", "*", "×"),
    ("divide", "divided", "quotient", "division", "除", "/", "÷"),
    ("today", "今天", "今日"),
    ("tomorrow", "明天", "明日"),
    ("yesterday", "昨天", "昨日"),
    ("metric", "公制"),
    ("imperial", "英制"),
)
"""Words of one group say exactly the same; an enum member in one language fits the other."""

TOPICS: tuple[tuple[str, ...], ...] = (
    *SAME_MEANING,
    ("weather", "temperature", "forecast", "rain", "degrees", "天气", "气温", "温度", "下雨", "度"),
    ("time", "clock", "几点", "时间", "时刻"),
    ("date", "calendar", "日期", "几号", "星期"),
    ("search", "find", "look up", "news", "latest", "搜索", "搜一下", "检索", "新闻", "最新"),
    (
        "calculate",
        "calculator",
        "compute",
        "math",
        "arithmetic",
        "how much is",
        "计算",
        "等于",
        "算",
    ),
    ("translate", "translation", "翻译"),
    ("stock", "share price", "股价", "股票"),
    ("currency", "exchange", "convert", "汇率", "换算", "兑换"),
    ("route", "directions", "distance", "路线", "距离", "多远"),
    ("flight", "airline", "航班", "机票"),
    ("hotel", "酒店", "宾馆"),
    ("email", "mail", "邮件", "邮箱"),
    ("book", "reserve", "reservation", "预订", "预定"),
    ("price", "cost", "价格", "多少钱"),
    ("order", "shipment", "delivery", "订单", "快递", "物流"),
)
"""Words of one group speak of one topic; a tool described in one language fits the other."""

CHINESE_FILLER = _words(
    """
    请问 请你 请帮我 请 帮我查一下 帮我查 帮我 帮忙 查一下 查一查 查查 查询 查 告诉我
    我想知道 想知道 我要 我想 我在 你知道 知道 你能 能不能 可以 看看 看一下 一下 今天 今日
    明天 明日 昨天 后天 现在 当前 目前 此刻 今晚 早上 晚上 下午 上午 这里 那里 天气预报 天气
    气温 温度 气候 最高 最低 多少 摄氏度 华氏度 摄氏 华氏 几度 怎么样 怎样 如何 什么样 什么
    是不是 是否 是 吗 呢 吧 啊 呀 了 的 情况 预报 热不热 冷不冷 冷吗 热吗 更冷 更热 还是 冷
    热 哪个 哪里 哪儿 哪座 会不会 会下雨 下雨 下雪 外面 那边 这边 那么 城市 市区 用 以 按
    单位 表示 给出 回答 有 从 到 去 在 之间 距离 多远 路线 几点 时间 分别 各 需要 大概 大约
    适合 出门 穿 衣服 带 伞 要 不要 预订 预定 搜索 计算
    你好 您好 谢谢 有多 多热 多冷 多高 翻译 这座 那座 这个 那个
    """
)
"""What is left of a Chinese question without these is taken for a name."""

ENGLISH_FILLER = frozenset(
    _words(
        """
        a about an and answer are as at be between book but by calculate can celsius check
        city cold compare compute convert could current currently date degree degrees did do
        does fahrenheit find for forecast from get give he hello here hey hi hot how i i'm
        if im in is it its know let like look many may me might much my need now of on or
        our please rain raining reply right search shall she should show snow tell
        temperature than thank thanks that the them then there these they this those time to
        today tomorrow tonight translate unit up us use using want warm was we weather were
        what whats when where which who whom whose why will with would yesterday you your
        """
    )
)
"""English words that no name begins with, and that say nothing about which tool fits."""

PLACES = {
    True: ("北京", "上海", "广州", "深圳", "成都", "西安", "哈尔滨", "三亚"),
    False: ("Paris", "London", "Tokyo", "Berlin", "Madrid", "Cairo", "Oslo", "Lima"),
}
"""Names for a wrong guess, by "is Chinese"."""

EXAMPLES = re.compile(
    r"(?:例如|比如|譬如|e\.g\.|such as|for example|like)[:： ]*(.+)", re.IGNORECASE
)
EXAMPLE_SEPARATOR = re.compile(r"[、，,;；/]|\bor\b|\band\b|或者|或|以及")

CJK = re.compile(r"[\u3400-\u9fff]")
CHINESE_FILLERS = re.compile(
    "|".join(
        [
            *map(re.escape, sorted(CHINESE_FILLER, key=len, reverse=True)),
            # single characters that are also a part of some names
            *("(?<!印)度", "(?<![成首京古])都(?!江堰)", "(?<!奥运)会(?=[下出有很太])", "那(?!曲)"),
            r"\d+\s*[年月日号点分]",
        ]
    )
)
# 和 joins two names, but it is also a part of some
CHINESE_JOINERS = re.compile(r"(?<!呼)和(?![浩田平龙县])|[与跟及、]|以及|还有")
ENGLISH_JOINER = re.compile(r"\s*(?:,\s*(?:and|or)?|and|or|&|vs\.?)\s*", re.IGNORECASE)

_TOPICS_OF: dict[str, frozenset[int]] = {
    word: frozenset(n for n, group in enumerate(TOPICS) if word in group)
    for group in TOPICS
    for word in group
}
_TOPIC_WORD = re.compile(
    "|".join(
        # an English word may have an ending: time, times
        rf"\b{re.escape(word)}" if re.fullmatch("[a-z ]+", word) else re.escape(word)
        for word in sorted(_TOPICS_OF, key=len, reverse=True)
    )
)


@lru_cache(maxsize=1024)
def topics(text: str) -> frozenset[int]:
    """Return the numbers of the groups of `TOPICS` that `text` touches."""
    return frozenset().union(*(_TOPICS_OF[word] for word in _TOPIC_WORD.findall(text.lower())))


@lru_cache(maxsize=1024)
def synonyms(word: str) -> tuple[str, ...]:
    """Return the words that mean exactly what `word` means, itself included, in lower case."""
    lowered = word.lower()
    for group in SAME_MEANING:
        if lowered in group:
            return group
    return (lowered,)
