"""用 cozeloop 上报 rollout 和 grader 的调用：输入、轨迹、结果、耗时、错误。

需要 pip install cozeloop，并设置 COZELOOP_WORKSPACE_ID 和 COZELOOP_API_TOKEN（任务里写在 envs）。
没有安装或者没有设置时什么也不做，只在日志里说一次。
"""

import functools
import inspect
import logging
import os
from contextlib import contextmanager

logger = logging.getLogger(__name__)


def coze_monitor(function):
    """装饰一个 rollout 或 grader，写在 @rollout、@group_grader 的下面；同步异步都可以。"""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def monitored(*args, **kwargs):
            with reported(function, args, kwargs) as outcome:
                outcome["result"] = await function(*args, **kwargs)
                return outcome["result"]
    else:

        @functools.wraps(function)
        def monitored(*args, **kwargs):
            with reported(function, args, kwargs) as outcome:
                outcome["result"] = function(*args, **kwargs)
                return outcome["result"]

    return monitored


@contextmanager
def reported(function, args, kwargs):
    """上报 with 里面的一次调用；结果由里面写进给出的字典。"""
    outcome = {}
    cozeloop = configured_cozeloop()
    if cozeloop is None:
        yield outcome
        return
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    with cozeloop.start_span(function.__name__, "plugin") as span:
        span.set_user_id(
            field_of(given.get("context"), "model_customization_job_id", "test_service")
        )
        # 只上报样本：proxy 里有密钥
        span.set_input(plain(given.get("sample")))
        try:
            yield outcome
        except BaseException as error:
            span.set_error(error)
            raise
        finally:
            proxy = given.get("proxy")
            report = {"result": plain(outcome.get("result"))}
            if proxy is not None:
                report["messages"] = [plain(message) for message in proxy.messages]
            span.set_output(report)


@functools.cache
def configured_cozeloop():
    """安装并且设置好了的 cozeloop，否则为 None。"""
    missing = [
        name for name in ("COZELOOP_WORKSPACE_ID", "COZELOOP_API_TOKEN") if not os.getenv(name)
    ]
    if missing:
        logger.info("没有设置 %s，不上报 cozeloop", "、".join(missing))
        return None
    try:
        import cozeloop
    except ImportError:
        logger.warning("设置了 COZELOOP_WORKSPACE_ID，但没有安装 cozeloop：pip install cozeloop")
        return None
    return cozeloop


def field_of(value, name, default):
    """字典的一项或者对象的一个属性；没有或者为空时是 default。"""
    found = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
    return found or default


def plain(value):
    """pydantic 的对象变成字典，其他的原样。"""
    return value.model_dump() if hasattr(value, "model_dump") else value
