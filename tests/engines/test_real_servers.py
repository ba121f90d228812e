"""`arkdev endpoint check` and the remote client against real servers (marker ``engines``).

Run by ``bash .ci/engines.sh``, which installs them; ``make test`` leaves them out.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arkdev.endpoints.capability_check.records import CAPABILITIES
from arkdev.endpoints.endpoint import ModelRequest
from arkdev.endpoints.registry import open_endpoint, resolve_endpoint
from arkdev.plugin.evidence import TokenRecordBuilder
from tests.engines.dialogues import dialogues_of_check
from tests.engines.servers import ROOT, llama_server, make_tiny_model, vllm_server

pytestmark = pytest.mark.engines
DOCUMENT = ROOT / "docs" / "endpoints.md"
CHECK_LIMIT_S = 120


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make_tiny_model(folder)
    return folder


@pytest.fixture(scope="session")
def vllm(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with vllm_server(model / "hf", log=tmp_path_factory.mktemp("vllm") / "log.txt") as url:
        yield url


@pytest.fixture(scope="session")
def llama(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with llama_server(model / "tiny.gguf", log=tmp_path_factory.mktemp("llama") / "log.txt") as url:
        yield url


def checked(name_or_url: str) -> dict[str, dict[str, Any]]:
    """The capabilities of `arkdev endpoint check --json`, by name."""
    command = [sys.executable, "-m", "arkdev", "endpoint", "check", name_or_url, "--json"]
    finished = subprocess.run(
        command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=CHECK_LIMIT_S, check=False
    )
    assert finished.returncode == 0, finished.stderr
    document = json.loads(finished.stdout)
    assert document["num_requests"] <= 13  # with the list of models
    return {row["name"]: row for row in document["capabilities"]}


def documented(heading: str) -> dict[str, str]:
    """Capability -> support, from the table under `heading` in docs/endpoints.md."""
    text = DOCUMENT.read_text(encoding="utf-8").partition(f"### {heading}")[2]
    block = text.partition("```text\n")[2].partition("```")[0]
    names = {title: name for name, title in CAPABILITIES.items()}
    rows = re.findall(r"^(\S.*?) {2,}(yes|partly|no|unknown) ", block, flags=re.MULTILINE)
    return {names[title]: support for title, support in rows if title in names}


def supports(rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: row["support"] for name, row in rows.items()}


def test_llama_cpp_does_what_the_document_shows(llama: str) -> None:
    rows = checked(llama)
    assert supports(rows) == documented("llama.cpp")
    assert "get_weather" in rows["tool_calls"]["evidence"]
    assert rows["responses_follow_up"]["status"] == 400


def test_vllm_does_what_the_document_shows(vllm: str) -> None:
    rows = checked(vllm)
    assert supports(rows) == documented("vLLM")
    assert "not found" in rows["responses_follow_up"]["server_said"]


async def conversation(url: str) -> TokenRecordBuilder:
    """The weather dialogue through the remote client, with token evidence asked for."""
    definition = {"base_url": url, "model": "tiny", "has_token_evidence": True}
    spec = resolve_endpoint("real", workspace_endpoints={"real": definition}, user_config=None)
    endpoint = open_endpoint(spec, max_in_flight=1, timeout_s=60)
    tokens = TokenRecordBuilder()
    dialogue = next(d for d in dialogues_of_check() if d["answer"].get("tool_calls"))
    messages, tools = list(dialogue["messages"]), dialogue["tools"]
    sampling = {"temperature": 0.0, "max_new_tokens": 64}
    try:
        for _ in range(2):
            body = {"messages": messages, "tools": tools}
            answer = await endpoint.complete(ModelRequest(body=body, sampling=sampling))
            tokens.add_call(answer)
            message = answer["choices"][0]["message"]
            messages.append(message)
            for call in message.get("tool_calls") or []:
                result = {"role": "tool", "tool_call_id": call["id"], "content": "31"}
                messages.append(result)
    finally:
        await endpoint.close()
    assert [m["role"] for m in messages[:4]] == ["user", "assistant", "tool", "assistant"]
    return tokens


def test_vllm_gives_token_evidence_for_a_whole_conversation(vllm: str) -> None:
    tokens = asyncio.run(conversation(vllm))
    evidence = tokens.built()
    assert evidence is not None, tokens.missing_reason
    sampled = [
        p for p, weight in zip(evidence.logprobs, evidence.loss_weight, strict=True) if weight
    ]
    assert sampled and all(logprob <= 0 for logprob in sampled)
    assert len(evidence.token_ids) == len(evidence.logprobs)


def test_llama_cpp_gives_none_and_nothing_is_guessed(llama: str) -> None:
    tokens = asyncio.run(conversation(llama))
    assert tokens.built() is None
