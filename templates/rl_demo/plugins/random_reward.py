"""天气问答的 grader：看最终回复里有没有标准答案。

文件和函数沿用平台示例里的名字；打分是确定的，与随机无关。

得分：1.0 答对；0.0 没答对，或轨迹停在工具调用上；rollout 在 extra["reward"] 里给了分就原样采用。
"""

import re
import unicodedata
from typing import Any

from ark_sdk.resources.pipeline_plugin import group_grader
from ark_sdk.types.pipeline_plugin import GroupGraderResult, PluginInstance, Runtime
from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginContext, PluginStatus
from ark_sdk.types.pipeline_plugin.rollout import ChatCompletionSample, Trajectory

RIGHT = 1.0
WRONG = 0.0

# 同一个意思的不同写法；在全角转半角、去掉空白之后替换
SPELLINGS = {"°C": "摄氏度", "°F": "华氏度", "零下": "-", "−": "-"}
LIST_DASH = re.compile(r"-\s+")  # 列表的短横，不是负号
READING = re.compile(r"(-?\d+(?:\.\d+)?)(摄氏度|华氏度)")


def normalise(text: str) -> str:
    """全角转半角、去掉空白、统一单位的写法："２６ ℃" 变成 "26摄氏度"。"""
    text = LIST_DASH.sub("", unicodedata.normalize("NFKC", text))
    text = "".join(text.split())
    for spelling, plain in SPELLINGS.items():
        text = text.replace(spelling, plain)
    return text


def final_text(trajectory: Trajectory) -> str:
    """最终回复的文字；最后一条不是模型的回复，或者还在调用工具时为空。"""
    message = trajectory.messages[-1]
    if message.role != "assistant" or message.tool_calls:
        return ""
    return content_text(message.content)


def content_text(content: Any) -> str:
    """消息内容里的文字；内容可以是字符串、分段的列表，也可以没有。"""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    return content or ""


def contains_answer(text: str, answer: str) -> bool:
    """回复里有标准答案，并且没有靠罗列多个读数来碰运气。"""
    text, answer = normalise(text), normalise(answer)
    # 前面不能还有数字或负号：126摄氏度 里没有 26摄氏度
    if not re.search(r"(?<![\d.-])" + re.escape(answer), text):
        return False
    readings = set(READING.findall(text))
    return len(readings) == len({unit for _, unit in readings})


def has_own_reward(trajectory: Trajectory) -> bool:
    """rollout 已经给这条轨迹定了分。"""
    return bool(trajectory.extra) and "reward" in trajectory.extra


@group_grader(
    name="random_reward",  # 报告里显示的名字，和 job.yaml 里的相同
    runtime=Runtime(instance=PluginInstance.CPU1MEM2, max_concurrency=100, timeout=300),
)
def random_reward_fn(
    context: PluginContext,
    sample: ChatCompletionSample,
    trajectories: list[Trajectory],
) -> GroupGraderResult:
    """给一个样本的所有轨迹打分，得分的顺序就是轨迹的顺序。"""
    answer = (sample.extra or {}).get("answer")
    if not answer:
        # 没有标准答案就无法打分：丢弃这个样本，而不是给 0 分
        return GroupGraderResult(
            rewards=[], metrics={}, status=PluginStatus.DISCARD, error="样本的 extra 里没有 answer"
        )

    rewards = [
        trajectory.extra["reward"]
        if has_own_reward(trajectory)
        else (RIGHT if contains_answer(final_text(trajectory), str(answer)) else WRONG)
        for trajectory in trajectories
    ]
    count = len(trajectories) or 1
    used_tool = [any(m.role == "tool" for m in t.messages) for t in trajectories]
    metrics = {
        "accuracy": sum(reward == RIGHT for reward in rewards) / count,
        "tool_use_rate": sum(used_tool) / count,
        "penalty_rate": sum(has_own_reward(t) for t in trajectories) / count,
    }
    return GroupGraderResult(
        rewards=rewards, metrics=metrics, status=PluginStatus.SUCCESS, error=""
    )


# 平台文档里还有另外两个名字，指的都是上面的函数：示例代码把 random 误拼成了 randaom，
# 照着它写的任务（plugins.random_reward:randaom_reward）也要能运行
random_reward = random_reward_fn
randaom_reward = random_reward_fn
