"""The weather rollouts and `test_with_dataset` against a model server (field cases 2.1-2.4)."""

from __future__ import annotations

import http.server
import importlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from arkdev.flows.init_workspace import create_workspace
from arkdev.plugin import ark_sdk, loading
from arkdev.plugin.proxy import InferenceProxy
from arkdev.plugin.responses import response_of_answer
from arkdev.types import ChatCompletionSample, PluginStatus, Trajectory

ROLLOUTS = ("weather_rollout", "async_weather_rollout", "raw_rollout")
QUESTION = {"role": "user", "content": "北京现在多少摄氏度？"}
SAMPLE = ChatCompletionSample(messages=[QUESTION], extra={"answer": "26摄氏度"})

Policy = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]


class ModelServer(http.server.ThreadingHTTPServer):
    """Answers chat completions by `policy`, which maps a request body to (status, body)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.policy: Policy = lambda _body: (500, {})
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/api/v3"

    def answer_in_turn(self, *answers: tuple[int, dict[str, Any]]) -> None:
        """Give the answers in order; the last one for ever."""
        self.policy = lambda _body: answers[min(len(self.requests), len(answers)) - 1]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: ModelServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(body)
        status, answer = self.server.policy(body)
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def says(content: str | None, *, finish: str = "stop") -> tuple[int, dict[str, Any]]:
    return _answer({"role": "assistant", "content": content}, finish)


def calls(arguments: str, *, finish: str = "tool_calls") -> tuple[int, dict[str, Any]]:
    function = {"name": "get_current_weather", "arguments": arguments}
    call = {"id": "call_7", "type": "function", "function": function}
    return _answer({"role": "assistant", "content": None, "tool_calls": [call]}, finish)


def _answer(message: dict[str, Any], finish: str) -> tuple[int, dict[str, Any]]:
    return 200, {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    }


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("templates") / "ws"
    create_workspace(root, template="rl_demo")
    ark_sdk.install()
    loading.use_workspace(root)
    yield root
    ark_sdk.uninstall()


def plugins(name: str, *, workspace: Path) -> ModuleType:
    loading.use_workspace(workspace)
    return importlib.import_module(f"plugins.{name}")


class Attempt:
    """One rollout: its result and its proxy."""

    def __init__(self, result: Any, proxy: InferenceProxy) -> None:
        self.status = PluginStatus.SUCCESS if result is None else result.status
        self.extra = None if result is None else result.extra
        self.messages = proxy.messages
        self.roles = [message.role for message in proxy.messages]


@pytest.fixture(params=ROLLOUTS)
def run(request: pytest.FixtureRequest, workspace: Path, server: ModelServer) -> Any:
    module = plugins(request.param, workspace=workspace)

    async def rollout(sample: ChatCompletionSample = SAMPLE) -> Attempt:
        proxy = InferenceProxy(sample, url=server.url, jwt_token="key")
        return Attempt(await module.demo_rollout({}, proxy, sample), proxy)

    return rollout


async def test_a_right_answer_after_the_tool_is_rewarded(
    run: Any, server: ModelServer, workspace: Path
) -> None:
    server.answer_in_turn(calls('{"location": "北京"}'), says("现在26摄氏度。"))
    attempt = await run()
    assert attempt.roles == ["user", "assistant", "tool", "assistant"]
    assert server.requests[1]["messages"][2]["content"] == "晴，26摄氏度"
    grader = plugins("random_reward", workspace=workspace).random_reward_fn
    result = await grader({}, SAMPLE, [Trajectory(messages=attempt.messages)])
    assert result.rewards == [1.0]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('{"location": "北', "invalid_json"),
        (json.dumps(json.dumps({"location": "北京"})), "double_encoded"),
        ('{"location": "亚特兰蒂斯"}', "bad_arguments"),
    ],
)
async def test_arguments_that_cannot_be_used_end_the_rollout_with_a_penalty(
    run: Any, server: ModelServer, caplog: pytest.LogCaptureFixture, arguments: str, reason: str
) -> None:
    server.answer_in_turn(calls(arguments))
    with caplog.at_level(logging.WARNING):
        attempt = await run()
    assert (attempt.status, attempt.extra) == (PluginStatus.SUCCESS, {"reward": -1})
    assert len(server.requests) == 1
    assert attempt.messages[-1].tool_calls[0].function.arguments == arguments
    assert reason in caplog.text
    assert "call_7" in caplog.text


async def test_a_turn_with_null_content_stays_in_the_next_request(
    run: Any, server: ModelServer
) -> None:
    server.answer_in_turn(calls('{"location": "北京"}'), says("26摄氏度"))
    await run()
    turn = server.requests[1]["messages"][1]
    assert turn["role"] == "assistant"
    assert turn["content"] is None


async def test_tool_calls_are_run_whatever_the_finish_reason(run: Any, server: ModelServer) -> None:
    server.answer_in_turn(calls('{"location": "北京"}', finish="stop"), says("26摄氏度"))
    attempt = await run()
    assert attempt.roles == ["user", "assistant", "tool", "assistant"]


async def test_no_tool_calls_end_the_rollout_whatever_the_finish_reason(
    run: Any, server: ModelServer
) -> None:
    server.answer_in_turn(says("", finish="tool_calls"))
    attempt = await run()
    assert len(server.requests) == 1
    assert attempt.status is PluginStatus.SUCCESS


async def test_a_model_that_never_stops_calling_is_stopped(run: Any, server: ModelServer) -> None:
    server.answer_in_turn(calls('{"location": "北京"}'))
    attempt = await run()
    assert len(server.requests) == 6
    assert attempt.extra is None


async def test_tools_of_the_sample_come_before_the_rollouts_own(
    run: Any, server: ModelServer
) -> None:
    own = {"type": "function", "function": {"name": "get_time", "parameters": {}}}
    server.answer_in_turn(says("26摄氏度"))
    await run(ChatCompletionSample(messages=[QUESTION], tools=[own]))
    names = [tool["function"]["name"] for tool in server.requests[0]["tools"]]
    assert names == ["get_time", "get_current_weather"]


def right_policy(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Calls the tool for the city of the question, then repeats what it reported."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return says(last["content"])
    text = last["content"]
    city = next(c for c in ("长春", "济南", "南宁", "北京") if c in text)
    unit = "华氏度" if "华氏度" in text else "摄氏度"
    return calls(json.dumps({"location": city, "unit": unit}, ensure_ascii=False))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "数据.jsonl"
    lines = [
        {"messages": [{"role": "user", "content": f"{city}现在多少摄氏度？"}], "extra": extra}
        for city, extra in [
            ("北京", {"answer": "26摄氏度"}),
            ("长春", {"answer": "5摄氏度"}),
            ("济南", {"answer": "99摄氏度"}),
            ("南宁", {}),
        ]
    ]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    path.write_text(text, encoding="utf-8")
    return path


async def test_dataset_is_run_in_the_documented_keyword_form(
    workspace: Path, server: ModelServer, dataset: Path
) -> None:
    server.policy = right_policy
    test_with_dataset = plugins("test_utils", workspace=workspace).test_with_dataset
    rewards = await test_with_dataset(
        str(dataset),
        plugins("async_weather_rollout", workspace=workspace).demo_rollout,
        plugins("random_reward", workspace=workspace).randaom_reward,
        "key",
        base_url=server.url,
        limit=3,
        max_concurrent=2,
        n_sample=2,
        top_p=0.9,
        temperature=0.5,
    )
    assert rewards == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    assert {(body["top_p"], body["temperature"]) for body in server.requests} == {(0.9, 0.5)}


async def test_dataset_is_run_in_the_older_form_and_failures_get_no_reward(
    workspace: Path,
    server: ModelServer,
    dataset: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def policy(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if "长春" in body["messages"][0]["content"]:
            return 400, {"error": {"message": "长春 is closed"}}
        return right_policy(body)

    server.policy = policy
    monkeypatch.setenv("ARK_API_KEY", "key")
    monkeypatch.setenv("ARK_BASE_URL", server.url)
    demo_rollout = plugins("weather_rollout", workspace=workspace).demo_rollout
    grader = plugins("random_reward", workspace=workspace).random_reward
    test_with_dataset = plugins("test_utils", workspace=workspace).test_with_dataset
    with caplog.at_level(logging.INFO):
        rewards = await test_with_dataset(
            str(dataset), demo_rollout, grader, limit=100, max_concurrent=5
        )
    # the second failed, the fourth has no answer: neither is a 0.0
    assert rewards == [1.0, 0.0]
    assert "长春 is closed" in caplog.text
    assert "'BadRequestError': 1" in caplog.text
    assert "'discard': 1" in caplog.text


@pytest.mark.parametrize("name", ["weather_rollout", "async_weather_rollout"])
async def test_max_concurrent_rollouts_are_under_way_at_once(
    workspace: Path, server: ModelServer, dataset: Path, name: str
) -> None:
    together = threading.Barrier(4)

    def policy(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        together.wait(timeout=300)
        return says("26摄氏度")

    server.policy = policy
    rewards = await plugins("test_utils", workspace=workspace).test_with_dataset(
        str(dataset),
        plugins(name, workspace=workspace).demo_rollout,
        plugins("random_reward", workspace=workspace).random_reward_fn,
        "key",
        base_url=server.url,
        limit=1,
        max_concurrent=4,
        n_sample=4,
    )
    assert rewards == [1.0] * 4


def test_a_broken_line_is_named(workspace: Path, dataset: Path) -> None:
    dataset.write_text('{"messages": []}\n{"mess', encoding="utf-8")
    load_samples = plugins("test_utils", workspace=workspace).load_samples
    with pytest.raises(ValueError, match=r"数据\.jsonl:2"):
        load_samples(str(dataset))


def response_of(body: dict[str, Any], answer: dict[str, Any], number: int) -> dict[str, Any]:
    return response_of_answer(
        answer, response_id=f"resp_{number}", previous_response_id=None, request=body
    )


def speak_responses(server: ModelServer, *answers: tuple[int, dict[str, Any]]) -> None:
    """Give the answers in order as Responses; the last one for ever."""

    def policy(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        number = len(server.requests)
        status, answer = answers[min(number, len(answers)) - 1]
        return status, response_of(body, answer, number)

    server.policy = policy


class Group:
    """One call of the group rollout: its result, and the messages of each trajectory."""

    def __init__(self, result: Any, proxy: InferenceProxy) -> None:
        self.result = result
        self.extras = [response.extra for response in result.responses]
        self.paths = [
            [message.content for message in proxy.responses.conversation(response.id).messages]
            for response in result.responses
        ]


@pytest.fixture
def run_group(workspace: Path, server: ModelServer) -> Any:
    module = plugins("group_weather_rollout", workspace=workspace)

    async def rollout(n_sample: int) -> Group:
        proxy = InferenceProxy(SAMPLE, url=server.url, jwt_token="key")
        return Group(await module.demo_rollout({}, proxy, SAMPLE, n_sample), proxy)

    return rollout


async def test_a_group_shares_its_first_call_and_answers_in_branches(
    run_group: Any, server: ModelServer
) -> None:
    speak_responses(
        server, calls('{"location": "北京"}'), says("26摄氏度"), says("27摄氏度"), says("不知道")
    )
    group = await run_group(3)
    assert len(server.requests) == 4
    assert [path[:3] for path in group.paths] == [[QUESTION["content"], None, "晴，26摄氏度"]] * 3
    assert sorted(path[3] for path in group.paths) == ["26摄氏度", "27摄氏度", "不知道"]
    assert server.requests[0]["tools"][0]["name"] == "get_current_weather"
    assert [item["type"] for item in server.requests[1]["input"]] == [
        "message",
        "function_call",
        "function_call_output",
    ]


async def test_a_bad_call_in_the_shared_turn_is_every_trajectory_s_penalty(
    run_group: Any, server: ModelServer
) -> None:
    speak_responses(server, calls('{"location": "北'))
    group = await run_group(3)
    assert len(server.requests) == 1
    assert group.extras == [{"reward": -1}] * 3


async def test_a_group_whose_model_never_stops_calling_is_stopped(
    run_group: Any, server: ModelServer
) -> None:
    speak_responses(server, calls('{"location": "北京"}'))
    group = await run_group(2)
    assert len(server.requests) == 1 + 2 * 5
    assert group.extras == [None, None]
