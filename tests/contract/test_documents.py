"""The documents' own code runs unchanged: only the imports that were cut off are added.

ARKDEV_DOCS_DIR names the folder of the documents. Their text is read there and written into a
temporary workspace; it is never part of this repository.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from arkdev.endpoints.scripted.server import ScriptedServer
from arkdev.sessions.background import BackgroundLoop
from tests.integration.loopback import Loopback, listening
from tests.integration.workspace import Run, Workspace, away_from_the_user, job_yaml

DOCUMENT = "004_6458894ba344b0cd.txt"
ROOT = Path(__file__).resolve().parents[2]
NUM_SAMPLES = 12

ROLLOUT_IMPORTS = '''
"""A rollout of the documents."""
import json
import logging
from typing import Optional

from ark_sdk.core.plugin.rollout.proxy import wrap_client_inplace
from ark_sdk.core.plugin.rollout.trace import coze_monitor
from ark_sdk.core.trace import wrap_inplace_trace
from ark_sdk.resources.pipeline_plugin import rollout
from ark_sdk.types.pipeline_plugin import PluginInstance, Runtime
from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginContext, PluginStatus
from ark_sdk.types.pipeline_plugin.rollout import (
    ChatCompletionMessage,
    ChatCompletionResponse,
    ChatCompletionSample,
    RolloutInferenceProxy,
    RolloutResult,
)
from volcenginesdkarkruntime import Ark
from volcenginesdkarkruntime.types.chat import ChatCompletion

from plugins.tool import get_current_weather, rollout_tools

LOCAL_TEST_MODEL = "doubao-seed-2-0-mini-260428"
logger = logging.getLogger(__name__)


'''
SEARCH_IMPORTS = '''
"""The search rollout of the documents."""
import asyncio
import json
import logging
import os
from typing import Optional

import backoff
import httpx
import jsonschema
from aiolimiter import AsyncLimiter
from ark_sdk.core.plugin.rollout import RolloutRetryException
from ark_sdk.core.plugin.rollout.proxy import wrap_async_client_inplace
from ark_sdk.core.plugin.rollout.trace import coze_monitor
from ark_sdk.core.trace import observe, wrap_inplace_trace
from ark_sdk.resources.pipeline_plugin import rollout
from ark_sdk.types.pipeline_plugin import PluginInstance, Runtime
from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginContext, PluginStatus
from ark_sdk.types.pipeline_plugin.rollout import (
    ChatCompletionSample,
    RolloutInferenceProxy,
    RolloutResult,
)
from volcenginesdkarkruntime import AsyncArk
from volcenginesdkarkruntime.types.chat import ChatCompletionContentPartParam

logger = logging.getLogger(__name__)


'''
JUDGE_IMPORTS = '''
"""The judge of the documents."""
import asyncio
import json
import logging
from typing import List, Optional

import backoff
import jsonschema
from ark_sdk.resources.pipeline_plugin import group_grader
from ark_sdk.types.pipeline_plugin import GroupGraderResult, PluginInstance, Runtime
from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginContext, PluginStatus
from ark_sdk.types.pipeline_plugin.rollout import ChatCompletionSample, Trajectory
from volcenginesdkarkruntime import AsyncArk
from volcenginesdkarkruntime._exceptions import (
    ArkAPIConnectionError,
    ArkInternalServerError,
    ArkRateLimitError,
)

logger = logging.getLogger(__name__)


'''
GRADER_IMPORTS = '''
"""The grader of the documents."""
import random
from typing import List

from ark_sdk.resources.pipeline_plugin import group_grader
from ark_sdk.types.pipeline_plugin import GroupGraderResult, PluginInstance, Runtime
from ark_sdk.types.pipeline_plugin.pipeline_plugin import PluginContext, PluginStatus
from ark_sdk.types.pipeline_plugin.rollout import ChatCompletionSample, Trajectory


'''
TOOL = '''
"""What the documents' rollouts call."""

def get_current_weather(location, unit="摄氏度"):
    return f"{location}晴，26{unit}"

rollout_tools = [{
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "查询城市当前天气",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "城市名，如北京"},
                "unit": {"type": "string", "enum": ["摄氏度", "华氏度"]},
            },
            "required": ["location"],
        },
    },
}]
'''


def documents_folder() -> Path | None:
    """The folder that ARKDEV_DOCS_DIR names; in CI also the one beside the checkout."""
    named = os.environ.get("ARKDEV_DOCS_DIR")
    if named:
        return Path(named)
    beside = ROOT.parent / "shared" / "reference"
    return beside if os.environ.get("CI") and beside.is_dir() else None


def code_blocks(text: str) -> list[str]:
    """The code blocks of a document, without the line numbers that stand before each.

    A block of N lines is preceded by the lines 1 to N; the last number touches the first line.
    """
    lines = text.split("\n")
    blocks = []
    number = 0
    for index, line in enumerate(lines):
        touching = re.match(rf"{number + 1}(?=\D)", line)
        if touching and number:
            code = [line[touching.end() :], *lines[index + 1 : index + number + 1]]
            blocks.append("\n".join(code))
        number = number + 1 if line == str(number + 1) else int(line == "1")
    return blocks


@pytest.fixture(scope="module")
def blocks() -> list[str]:
    folder = documents_folder()
    if folder is None:
        pytest.skip("ARKDEV_DOCS_DIR names no folder")
    if not os.environ.get("CI") and importlib.util.find_spec("volcenginesdkarkruntime") is None:
        pytest.skip("the extra `ark` is not installed")
    return code_blocks((folder / DOCUMENT).read_text(encoding="utf-8"))


def the_block_with(blocks: list[str], *parts: str) -> str:
    (block,) = [block for block in blocks if all(part in block for part in parts)]
    compile(block, DOCUMENT, "exec")
    return block


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with away_from_the_user(tmp_path / "config", monkeypatch):
        yield


@pytest.fixture
def documents(tmp_path: Path, blocks: list[str]) -> Workspace:
    """A workspace made of the documents' two weather rollouts and their grader."""
    workspace = Workspace(tmp_path / "ws")
    wrapped = the_block_with(blocks, "@rollout", "wrap_client_inplace(client, proxy=proxy)", "step")
    raw = the_block_with(blocks, "@rollout", "proxy.process_completion(")
    grader = the_block_with(blocks, "@group_grader", "def random_reward_fn(")
    workspace.write("plugins/tool.py", TOOL)
    workspace.write("plugins/wrapped.py", ROLLOUT_IMPORTS + wrapped)
    workspace.write("plugins/raw.py", ROLLOUT_IMPORTS + raw)
    workspace.write("plugins/random_reward.py", GRADER_IMPORTS + grader)
    grader_of_job = "plugins.random_reward:random_reward_fn"
    workspace.write("job.yaml", job_yaml(grader=grader_of_job, grader_name="random_reward"))
    workspace.samples(*[f"{city}现在多少摄氏度？" for city in "京沪穗深杭宁蓉渝汉津湘郑"])
    return workspace


def check_every_rollout(run: Run, *, via: str) -> None:
    assert run.summary.verdicts == {"success": NUM_SAMPLES}
    assert run.exit_code == 0
    for record in run.trajectories:
        assert len(record.attempts) == 1
        assert [turn.via for turn in record.turns] == [via, via]
        assert [turn.tool_calls for turn in record.turns] == [("get_current_weather",), ()]
        roles = [message["role"] for message in record.messages]
        assert roles == ["user", "assistant", "tool", "assistant"]
        assert record.finish_reason == "stop"
        assert record.usage is not None and record.usage["total_tokens"]
    (rewards,) = zip(*run.rewards, strict=True)
    assert all(0.0 <= reward < 1.0 for reward in rewards)
    assert len(set(rewards)) == NUM_SAMPLES


@pytest.mark.docs
@pytest.mark.parametrize("kind", ["wrapped", "raw"])
def test_the_weather_rollouts_run_unchanged(documents: Workspace, kind: str) -> None:
    run = documents.run(rollout=f"plugins.{kind}:demo_rollout", skill=1.0)
    check_every_rollout(run, via=kind)
    codes = {warning.code for warning in run.summary.warnings}
    assert codes == {"client_built_per_rollout"}
    assert run.outcome.clients_built == NUM_SAMPLES


@pytest.mark.docs
def test_the_grader_takes_the_reward_that_the_rollout_gives(documents: Workspace) -> None:
    bad_call = {"turn": 0, "tool_calls": [{"name": "get_current_weather", "arguments": "{"}]}
    script = documents.script(bad_call)
    run = documents.run(rollout="plugins.wrapped:demo_rollout", script=script, limit=2)
    assert [record.extra for record in run.trajectories] == [{"reward": -1}] * 2
    assert run.rewards == [(-1.0,)] * 2
    # the raw rollout catches nothing: its exception is a failure
    run = documents.run(rollout="plugins.raw:demo_rollout", script=script, limit=1)
    assert run.summary.verdicts == {"failure": 1}
    assert "JSONDecodeError" in run.summary.errors[0].message


# the documents' judge makes a client for each group and closes none
NEVER_CLOSED = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
BUILDERS = {
    f"{site}灯塔": f"沈{given}" for site, given in zip("潮望归长拂半", "甲乙丙丁戊己", strict=True)
}


def found(count: int, body: dict[str, Any]) -> tuple[int, Any]:
    """What the search API says of a lighthouse; it is busy at first."""
    if count <= 2:
        return 503, {"error": "busy"}
    name = next(name for name in BUILDERS if name in body["Query"])
    text = f"{name}的建造者是{BUILDERS[name]}。"
    return 200, {"Result": {"WebResults": [{"Title": name, "Snippet": text}]}}


@pytest.fixture
def public_urls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """The search API and Ark's public endpoint on loopback: below the client, above the socket."""
    background = BackgroundLoop()
    background.start()
    ark = ScriptedServer(skill=1.0)
    url = asyncio.run_coroutine_threadsafe(ark.start(), background.loop).result()
    with listening(found) as search:
        places = {
            "open.feedcoopapi.com": httpx.URL(search.url),
            "ark.cn-beijing.volces.com": httpx.URL(url),
        }
        send = httpx.AsyncHTTPTransport.handle_async_request

        async def redirected(transport: Any, request: httpx.Request) -> httpx.Response:
            place = places.get(request.url.host)
            if place is not None:
                request.url = request.url.copy_with(scheme="http", host=place.host, port=place.port)
            return await send(transport, request)

        monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", redirected)
        monkeypatch.setenv("SEARCH_API_KEY", "search-key")
        yield search
    gc.collect()  # what the judge leaves open is not found in another test
    asyncio.run_coroutine_threadsafe(ark.stop(), background.loop).result(timeout=60)
    background.stop()


@pytest.fixture
def search_documents(
    tmp_path: Path, blocks: list[str], monkeypatch: pytest.MonkeyPatch
) -> Workspace:
    """A workspace made of the documents' search rollout and judge."""
    # full jitter waits random.uniform(0, limit)
    monkeypatch.setattr(random, "uniform", lambda low, _high: low)
    workspace = Workspace(tmp_path / "ws")
    search = the_block_with(blocks, "@rollout", "def exec_tool_call(")
    judge = the_block_with(blocks, "@group_grader", "def llm_grader(")
    workspace.write("plugins/rollout.py", SEARCH_IMPORTS + search)
    workspace.write("plugins/llm_grader.py", JUDGE_IMPORTS + judge)
    job = job_yaml(
        rollout="plugins.rollout:demo_rollout",
        grader="plugins.llm_grader:llm_grader",
        grader_name="llm_grader",
    )
    workspace.write("job.yaml", job)
    workspace.lines(
        {
            "messages": [{"role": "user", "content": f"{name}的建造者是谁？"}],
            "extra": {"answer": builder},
        }
        for name, builder in BUILDERS.items()
    )
    return workspace


@NEVER_CLOSED
@pytest.mark.docs
def test_the_search_rollout_and_the_judge_run_unchanged(
    search_documents: Workspace, public_urls: Loopback
) -> None:
    run = search_documents.run(skill=1.0)
    assert run.summary.verdicts == {"success": len(BUILDERS)}
    assert run.rewards == [(1.0,)] * len(BUILDERS)
    for record in run.trajectories:
        assert len(record.attempts) == 1
        roles = [message["role"] for message in record.messages]
        assert roles == ["user", "assistant", "tool", "assistant"]
    assert len(public_urls.requests) == len(BUILDERS) + 2, "two searches were tried again"
    path, authorization, body = public_urls.requests[-1]
    assert path == "/search_api/web_search"
    assert authorization == "Bearer search-key"
    assert body["SearchType"] == "web"


@NEVER_CLOSED
@pytest.mark.docs
def test_the_judge_penalises_what_the_documents_say(
    search_documents: Workspace, public_urls: Loopback
) -> None:
    search = {"name": "web_search", "arguments": '{"Query": "潮灯塔"}'}
    for script, reward in [
        ([{"tool_calls": [{"name": "web_search", "arguments": "{"}]}], -1.0),
        ([{"tool_calls": [{"name": "web_search", "arguments": '{"Count": 3}'}]}], -1.0),
        ([{"content": "沈甲"}], -1.0),
        ([{"tool_calls": [search]}], 0.0),
        ([{"turn": 0, "tool_calls": [search]}, {"content": "不知道"}], 0.0),
        ([{"turn": 0, "tool_calls": [search]}, {"content": "是沈甲"}], 1.0),
    ]:
        run = search_documents.run(script=search_documents.script(*script), limit=1)
        assert run.rewards == [(reward,)], script


def test_code_is_cut_out_of_its_line_numbers() -> None:
    text = "words\n1\n2\n3def f():\n    return 4\n\n1\n2\nmore\n1\n2x = 1\n5y = 2\nwords"
    assert code_blocks(text) == ["def f():\n    return 4\n", "x = 1\n5y = 2"]
