"""The search template's world, files and monitor; what needs a run is in tests/integration."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from arkdev.flows.init_workspace import create_workspace, templates_root
from arkdev.plugin import ark_sdk, loading
from arkdev.plugin.proxy import InferenceProxy
from arkdev.types import ChatCompletionSample, PluginContext

TEMPLATE = templates_root() / "rl_search_mcp_demo"
CHAIN = re.compile(r"(.+?)是(?:谁|哪座岛|什么|几月)？")
SAMPLE = ChatCompletionSample(messages=[{"role": "user", "content": "潮音灯塔的建造者是谁？"}])


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"search_{name}", TEMPLATE / f"plugins/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def corpus() -> Iterator[ModuleType]:
    module = load("search_corpus")
    yield module
    del sys.modules[module.__name__]


def dataset() -> list[dict[str, Any]]:
    files = sorted((TEMPLATE / "data").glob("*.jsonl"))
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    return [json.loads(line) for line in text.splitlines()]


def test_the_datasets_have_the_documented_sizes() -> None:
    sizes = {
        file.name: len(file.read_text(encoding="utf-8").splitlines())
        for file in (TEMPLATE / "data").glob("*.jsonl")
    }
    assert sizes["search_dataset_dev_100.jsonl"] == 100
    assert sizes["search_dataset.jsonl"] >= 128


def test_the_world_is_small_and_has_no_two_documents_of_one_name(corpus: ModuleType) -> None:
    titles = [title for title, _ in corpus.make_world().documents]
    assert 60 <= len(titles) <= 100
    assert len(set(titles)) == len(titles)
    # a name inside another would make a search for the longer one find the shorter one too
    assert not [(a, b) for a in titles for b in titles if a != b and a in b]


def test_every_answer_is_found_by_following_the_first_result_of_each_search(
    corpus: ModuleType,
) -> None:
    hops = set()
    for line in dataset():
        match = CHAIN.fullmatch(line["messages"][0]["content"])
        assert match is not None
        name, *relations = match[1].split("的")
        for relation in relations:
            _, text = corpus.search(f"{name}的{relation}", 10)[0]
            (name,) = re.findall(rf"{relation}是(.+?)[，。]", text)
        assert name == line["extra"]["answer"]
        assert len(relations) == line["extra"]["num_hops"]
        hops.add(len(relations))
    assert hops == {1, 2, 3}


def test_no_question_is_answered_by_the_documents_of_its_own_name_alone_when_it_has_more_hops(
    corpus: ModuleType,
) -> None:
    texts = dict(corpus.make_world().documents)
    several = [line for line in dataset() if line["extra"]["num_hops"] > 1]
    given_away = [
        line
        for line in several
        if line["extra"]["answer"] in texts[line["messages"][0]["content"].split("的")[0]]
    ]
    # a person and the teacher may come from one island
    assert len(given_away) < len(several) / 10


def test_results_are_few_and_limited(corpus: ModuleType) -> None:
    for title, _ in corpus.make_world().documents:
        assert len(corpus.search(title, 10)) <= 10
        assert len(corpus.search(title, 1)) == 1
    assert corpus.search("", 10) == []


def test_both_demos_have_the_same_test_utilities() -> None:
    other = templates_root() / "rl_demo/plugins/test_utils.py"
    assert (TEMPLATE / "plugins/test_utils.py").read_bytes() == other.read_bytes()


def test_the_mcp_configuration_starts_the_templates_own_server() -> None:
    config = json.loads((TEMPLATE / "mcp_config.json").read_text(encoding="utf-8"))
    (server,) = config["mcpServers"].values()
    assert server == {"command": "python", "args": ["-m", "plugins.search_server"]}
    assert (TEMPLATE / "plugins/search_server.py").is_file()


FAKE_COZELOOP = '''
"""Stands for the package cozeloop: keeps what is reported."""
from contextlib import contextmanager

spans = []

class Span(dict):
    def __getattr__(self, name):
        return lambda value: self.__setitem__(name.removeprefix("set_"), value)

@contextmanager
def start_span(name, span_type):
    span = Span(name=name, span_type=span_type)
    spans.append(span)
    yield span
'''


@pytest.fixture
def monitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The workspace's decorator, loaded anew."""
    create_workspace(tmp_path / "ws", template="rl_search_mcp_demo")
    ark_sdk.install()
    loading.use_workspace(tmp_path / "ws")
    for name in ("COZELOOP_WORKSPACE_ID", "COZELOOP_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield importlib.import_module("plugins.coze_monitor").coze_monitor
    ark_sdk.uninstall()


@pytest.fixture
def cozeloop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/cozeloop.py").write_text(FAKE_COZELOOP, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.setenv("COZELOOP_WORKSPACE_ID", "w")
    monkeypatch.setenv("COZELOOP_API_TOKEN", "t")
    yield importlib.import_module("cozeloop")
    del sys.modules["cozeloop"]


def test_the_monitor_keeps_signature_and_kind(monitor: Any) -> None:
    def blocking(context: Any, proxy: Any, sample: Any) -> None:
        """What it does."""

    async def waiting(context: Any, proxy: Any, sample: Any) -> None:
        """What it does."""

    for function in (blocking, waiting):
        monitored = monitor(function)
        assert inspect.signature(monitored) == inspect.signature(function)
        assert inspect.iscoroutinefunction(monitored) == inspect.iscoroutinefunction(function)
        assert (monitored.__name__, monitored.__doc__) == (function.__name__, "What it does.")


def test_without_settings_the_monitor_passes_through_and_says_so_once(
    monitor: Any, caplog: pytest.LogCaptureFixture
) -> None:
    double = monitor(lambda number: 2 * number)
    with caplog.at_level("INFO"):
        assert [double(n) for n in range(3)] == [0, 2, 4]
    assert caplog.text.count("不上报 cozeloop") == 1


def test_without_the_package_the_monitor_names_it_once(
    monitor: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("COZELOOP_WORKSPACE_ID", "w")
    monkeypatch.setenv("COZELOOP_API_TOKEN", "t")
    monkeypatch.setitem(sys.modules, "cozeloop", None)
    double = monitor(lambda number: 2 * number)
    assert [double(n) for n in range(3)] == [0, 2, 4]
    assert caplog.text.count("pip install cozeloop") == 1


async def test_the_monitor_reports_the_trajectory_and_never_the_key(
    monitor: Any, cozeloop: Any
) -> None:
    @monitor
    async def rollout(context: Any, proxy: Any, sample: Any) -> str:
        return "done"

    proxy = InferenceProxy(SAMPLE, url="http://127.0.0.1:1", jwt_token="secret-key")
    proxy.update_state_from_messages(SAMPLE.messages)
    context = PluginContext(model_customization_job_id="mcj-1")
    assert await rollout(context, proxy, SAMPLE) == "done"
    assert await rollout({}, proxy, SAMPLE) == "done"
    first, second = cozeloop.spans
    assert (first["user_id"], second["user_id"]) == ("mcj-1", "test_service")
    assert first["name"] == "rollout"
    assert first["input"]["messages"][0]["content"] == "潮音灯塔的建造者是谁？"
    assert [m["role"] for m in first["output"]["messages"]] == ["user"]
    assert first["output"]["result"] == "done"
    assert "secret-key" not in repr(cozeloop.spans)


def test_the_monitor_reports_an_error_and_raises_it(monitor: Any, cozeloop: Any) -> None:
    @monitor
    def grade(context: Any, sample: Any, trajectories: Any) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        grade({}, SAMPLE, [])
    (span,) = cozeloop.spans
    assert str(span["error"]) == "broken"
