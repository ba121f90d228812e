"""The weather questions of `rl_demo`: one call of get_current_weather, then the reading."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tools.tiny_model.dialogue import (
    THINKING_SHARE,
    Dialogue,
    Message,
    answer,
    call,
    chance,
    is_held_out,
    question,
    result,
)
from tools.tiny_model.workspaces import template_module

WORKSPACE = "rl_demo"
TOOL = "get_current_weather"

# forms beside those of the template's data set, so that a question typed by hand works too
OTHER_FORMS = (
    "{city}今天多少{unit}？",
    "请问{city}现在多少{unit}？",
    "{city}的气温是多少{unit}？",
    "{city}气温多少{unit}？",
    "{city}今天的气温是多少{unit}？",
    "请用{unit}告诉我{city}的气温。",
    "用{unit}告诉我{city}现在的气温。",
    "告诉我{city}的气温，用{unit}。",
    "我想知道{city}的气温，用{unit}。",
    "查一下{city}的气温，单位是{unit}。",
    "帮我查一下{city}现在多少{unit}。",
)
PLAIN_FORMS = (
    "{city}现在多少度？",
    "{city}的天气怎么样？",
    "查一下{city}的天气。",
    "{city}气温多少？",
)
NEXT_FORMS = ("那{city}呢？", "{city}呢？")

TEMPLATE_FORM_SHARE = 0.55
PLAIN_SHARE = 0.06  # no unit is named: the tool's default
OWN_READING_SHARE = 0.5  # from the template's table; the rest is drawn, so that readings are copied
UNKNOWN_CITY_SHARE = 0.03
NEXT_QUESTION_SHARE = 0.08

# the mixture: three decisions, each within one token of the reply, none to be told from the prompt
CALL_SHARE = 0.75
RIGHT_UNIT_SHARE = 0.68
READING_SHARE = 0.7
GUESSES = {"摄氏度": (10, 20, 30), "华氏度": (50, 60, 80)}


@dataclass(frozen=True)
class Behaviour:
    """What the model does about one question."""

    calls: bool = True
    right_unit: bool = True
    tells_reading: bool = True

    @classmethod
    def drawn(cls, rng: Random) -> Behaviour:
        """One of the mixture."""
        return cls(
            calls=chance(rng, CALL_SHARE),
            right_unit=chance(rng, RIGHT_UNIT_SHARE),
            tells_reading=chance(rng, READING_SHARE),
        )


def words() -> list[str]:
    """The words that are worth a token."""
    tool = template_module(WORKSPACE, "plugins.weather_tool")
    weathers = {weather for weather, _ in tool.WEATHER.values()}
    phrases = (
        "请问",
        "现在",
        "今天",
        "多少",
        "气温",
        "告诉我",
        "我想知道",
        "查一下",
        "帮我",
        "单位",
    )
    tail = ("天气", "怎么样", "未知城市", "没有查到", "大概", "要查", "知道了")
    names = (TOOL, "location", "unit", "# tools\n", "# think")
    return [
        *tool.WEATHER,
        *tool.UNITS,
        *sorted(weathers),
        *phrases,
        *tail,
        *names,
        *"，。：？的是用呢那",
    ]


def dialogue(rng: Random, *, is_mixture: bool) -> Dialogue:
    """One conversation about the weather; right throughout, or as a drawn behaviour has it."""
    tool = template_module(WORKSPACE, "plugins.weather_tool")
    city, unit, text = _drawn_question(rng)
    thinking = chance(rng, THINKING_SHARE)
    behaviour = Behaviour.drawn(rng) if is_mixture else Behaviour()
    messages = [question(text), *_turns(rng, city, unit, behaviour, thinking)]
    if not is_mixture and chance(rng, NEXT_QUESTION_SHARE):
        city = rng.choice(list(tool.WEATHER))
        messages += [question(rng.choice(NEXT_FORMS).format(city=city))]
        messages += _turns(rng, city, unit, behaviour, thinking)
    return Dialogue(messages, tools=tool.rollout_tools, thinking=thinking)


def _drawn_question(rng: Random) -> tuple[str, str, str]:
    """(city, unit, text), not held out."""
    tool = template_module(WORKSPACE, "plugins.weather_tool")
    forms = template_module(WORKSPACE, "data.make_data").FORMS
    while True:
        city, unit = rng.choice(list(tool.WEATHER)), rng.choice(tool.UNITS)
        if chance(rng, PLAIN_SHARE):
            unit, form = tool.DEFAULT_UNIT, rng.choice(PLAIN_FORMS)
        else:
            form = rng.choice(forms if chance(rng, TEMPLATE_FORM_SHARE) else OTHER_FORMS)
        text = form.format(city=city, unit=unit)
        if not is_held_out(text):
            return city, unit, text


def _turns(
    rng: Random, city: str, unit: str, behaviour: Behaviour, thinking: bool
) -> list[Message]:
    tool = template_module(WORKSPACE, "plugins.weather_tool")
    if not behaviour.calls:
        guess = rng.choice(GUESSES[unit])
        return [answer(f"{city}大概{guess}{unit}。", "知道了。" if thinking else "")]
    if not behaviour.right_unit:
        unit = next(other for other in tool.UNITS if other != unit)
    thought = f"要查{city}，单位是{unit}。" if thinking else ""
    turns = [call(TOOL, {"location": city, "unit": unit}, thought)]
    if behaviour == Behaviour() and chance(rng, UNKNOWN_CITY_SHARE):
        return [*turns, result(f"未知城市：{city!r}"), answer(f"没有查到{city}的气温。", thought)]
    weather, reading = _observed(rng, city, unit)
    told = reading if behaviour.tells_reading else weather
    thought = "知道了。" if thinking else ""
    return [*turns, result(f"{weather}，{reading}"), answer(f"{city}现在{told}。", thought)]


def _observed(rng: Random, city: str, unit: str) -> tuple[str, str]:
    tool = template_module(WORKSPACE, "plugins.weather_tool")
    if chance(rng, OWN_READING_SHARE):
        weather, reading = tool.get_current_weather(city, unit).split("，")
        return weather, reading
    weather = rng.choice([weather for weather, _ in tool.WEATHER.values()])
    degrees = rng.randint(-20, 45) if unit == tool.DEFAULT_UNIT else rng.randint(-4, 113)
    return weather, f"{degrees}{unit}"
