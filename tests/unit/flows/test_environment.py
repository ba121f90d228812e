"""The environment of plugins in a scripted test: a judge finds the scripted model."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from collections.abc import Iterator

import pytest

from arkdev.endpoints.registry import LOCAL
from arkdev.endpoints.spec import EndpointSpec
from arkdev.flows.environment import environment, judge_environment, secrets_of
from arkdev.sessions.background import BackgroundLoop

SCRIPTED = EndpointSpec(
    name="scripted",
    base_url=None,
    model="scripted",
    api_key_env=None,
    family="scripted",
    source="built in",
)
REMOTE = EndpointSpec(
    name="mine",
    base_url="http://127.0.0.1:1/v1",
    model="m",
    api_key_env=None,
    family="openai",
    source="command line",
)


@pytest.fixture
def background() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop()
    loop.start()
    yield loop
    loop.stop()


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ARK_BASE_URL", "ARK_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def ask(url: str, question: str) -> str:
    body = {"model": "m", "messages": [{"role": "user", "content": question}]}
    request = urllib.request.Request(
        f"{url}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        answer = json.load(response)
    return str(answer["choices"][0]["message"]["content"])


@pytest.mark.parametrize("endpoint", [SCRIPTED, LOCAL], ids=lambda spec: spec.name)
async def test_a_judge_reaches_a_scripted_model_that_does_not_err(
    background: BackgroundLoop, endpoint: EndpointSpec
) -> None:
    async with judge_environment(endpoint, background.loop) as server:
        url = os.environ["ARK_BASE_URL"]
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/api/v3")
        assert os.environ["ARK_API_KEY"]
        said = await asyncio.gather(
            *(asyncio.to_thread(ask, url, f"{n} + 1 = ?") for n in range(8))
        )
        assert [f"{n + 1}" in text for n, text in enumerate(said)] == [True] * 8
        assert server.num_chat_calls == 8
    assert "ARK_BASE_URL" not in os.environ
    assert "ARK_API_KEY" not in os.environ
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(ask, url, "1 + 1 = ?")


async def test_the_users_own_judge_is_left_alone(
    background: BackgroundLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARK_BASE_URL", "http://127.0.0.1:1/v1")
    async with judge_environment(SCRIPTED, background.loop) as server:
        assert server is None
        assert os.environ["ARK_BASE_URL"] == "http://127.0.0.1:1/v1"


async def test_another_endpoint_changes_nothing(background: BackgroundLoop) -> None:
    async with judge_environment(REMOTE, background.loop) as server:
        assert server is None
        assert "ARK_BASE_URL" not in os.environ


async def test_a_key_that_is_set_stays(
    background: BackgroundLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARK_API_KEY", "mine")
    async with judge_environment(SCRIPTED, background.loop):
        assert os.environ["ARK_API_KEY"] == "mine"
    assert os.environ["ARK_API_KEY"] == "mine"


def test_variables_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARKDEV_TEST_A", "before")
    monkeypatch.delenv("ARKDEV_TEST_B", raising=False)
    with environment({"ARKDEV_TEST_A": "1", "ARKDEV_TEST_B": "2"}):
        assert (os.environ["ARKDEV_TEST_A"], os.environ["ARKDEV_TEST_B"]) == ("1", "2")
    assert os.environ["ARKDEV_TEST_A"] == "before"
    assert "ARKDEV_TEST_B" not in os.environ


def test_a_plain_word_of_the_job_is_no_secret_unless_its_name_says_so():
    spec = EndpointSpec("scripted", None, "m", None, "scripted", "built in")
    envs = {"MODE": "success", "DB_PASSWORD": "success", "URL": "http://10.0.0.1"}
    assert secrets_of(spec, envs) == ("http://10.0.0.1", "success")
    assert secrets_of(spec, {"MODE": "success"}) == ()
