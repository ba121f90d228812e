"""天气工具：一张本地的固定天气表。同样的问题永远得到同样的读数，所以答案可以核对。

四个 rollout 共用这里的工具定义和执行函数；data/make_data.py 用同一张表生成标准答案。
"""

import json

DEFAULT_UNIT = "摄氏度"
UNITS = ("摄氏度", "华氏度")

# 城市 -> (天气, 摄氏气温)
WEATHER = {
    "北京": ("晴", 26),
    "上海": ("多云", 28),
    "广州": ("雷阵雨", 33),
    "深圳": ("阵雨", 32),
    "杭州": ("多云", 29),
    "南京": ("晴", 27),
    "苏州": ("阴", 25),
    "成都": ("小雨", 22),
    "重庆": ("阴", 30),
    "武汉": ("晴", 31),
    "西安": ("多云", 23),
    "天津": ("晴", 24),
    "长沙": ("小雨", 21),
    "郑州": ("晴", 20),
    "青岛": ("大风", 18),
    "济南": ("多云", 19),
    "大连": ("大风", 15),
    "沈阳": ("阴", 12),
    "哈尔滨": ("小雪", 2),
    "长春": ("阴", 5),
    "厦门": ("晴", 34),
    "福州": ("多云", 35),
    "昆明": ("晴", 17),
    "贵阳": ("小雨", 16),
    "南宁": ("雷阵雨", 36),
    "海口": ("阵雨", 37),
    "三亚": ("晴", 38),
    "合肥": ("阴", 14),
    "南昌": ("小雨", 13),
    "太原": ("多云", 9),
    "兰州": ("晴", 7),
    "拉萨": ("晴", 4),
}

rollout_tools = [
    {
        "type": "function",
        "function": {
            "name": "get_current_weather",
            "description": "查询城市当前天气",
            "parameters": {
                "type": "object",
                "properties": {
                    "location": {"type": "string", "description": "城市名，如北京"},
                    "unit": {"type": "string", "enum": list(UNITS)},
                },
                "required": ["location"],
            },
        },
    }
]


class ToolCallError(Exception):
    """模型发起的工具调用无法执行。reason 是固定的名字，便于在日志里统计。"""

    def __init__(self, reason, message):
        super().__init__(message)
        self.reason = reason


def reading(location, unit=DEFAULT_UNIT):
    """气温读数，如 "26摄氏度"。城市或单位不认识时抛出 ValueError。"""
    if location not in WEATHER:
        raise ValueError(f"未知城市：{location!r}")
    if unit not in UNITS:
        raise ValueError(f"未知单位：{unit!r}，可选 {'、'.join(UNITS)}")
    celsius = WEATHER[location][1]
    degrees = celsius if unit == DEFAULT_UNIT else round(celsius * 9 / 5 + 32)
    return f"{degrees}{unit}"


def get_current_weather(location, unit=DEFAULT_UNIT):
    """查询天气，如 "晴，26摄氏度"。城市或单位不认识时抛出 ValueError。"""
    temperature = reading(location, unit)
    return f"{WEATHER[location][0]}，{temperature}"


def parse_arguments(text):
    """把模型给出的参数文本解析成字典；解析不了时抛出 ToolCallError。"""
    try:
        arguments = json.loads(text or "")
    except json.JSONDecodeError as error:
        raise ToolCallError(
            "invalid_json", f"参数不是合法的 JSON：{error}；原文 {text!r}"
        ) from error
    if isinstance(arguments, str):
        # 整个对象又被当作字符串编码了一次。不替模型纠正：纠正了它就学不会
        raise ToolCallError("double_encoded", f"参数被 JSON 编码了两次；原文 {text!r}")
    if not isinstance(arguments, dict):
        raise ToolCallError("not_an_object", f"参数不是 JSON 对象；原文 {text!r}")
    return arguments


def run_tool_call(call_id, name, arguments):
    """执行一个工具调用，返回结果文本；不能执行就抛出 ToolCallError。arguments 是 JSON 文本。"""
    if name != "get_current_weather":
        raise ToolCallError("unknown_tool", f"{call_id}：没有名为 {name!r} 的工具")
    try:
        return get_current_weather(**parse_arguments(arguments))
    except ToolCallError as error:
        raise ToolCallError(error.reason, f"{call_id}：{error}") from error
    except (TypeError, ValueError) as error:
        raise ToolCallError("bad_arguments", f"{call_id}：{error}") from error


def run_tool_calls(tool_calls):
    """依次执行 Chat API 一轮里的工具调用，返回要追加到对话的 tool 消息。"""
    messages = []
    for tool_call in tool_calls:
        function = tool_call.function
        content = run_tool_call(tool_call.id, function.name, function.arguments)
        messages.append({"role": "tool", "content": content, "tool_call_id": tool_call.id})
    return messages
