"""The scripted model as an `Endpoint` in process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import pytest

from arkdev.endpoints.endpoint import Endpoint, ModelRequest
from arkdev.endpoints.scripted.endpoint import ScriptedEndpoint
from arkdev.endpoints.scripted.script import Script
from arkdev.errors import EndpointResponseError, UsageError

BODY = {"messages": [{"role": "user", "content": "12 + 7"}]}


def script(*answers: dict[str, Any]) -> Script:
    return Script.model_validate({"answers": list(answers)})


async def refused(endpoint: Endpoint, body: dict[str, Any] | None = None) -> EndpointResponseError:
    with pytest.raises(EndpointResponseError) as caught:
        await endpoint.complete(ModelRequest(body=BODY if body is None else body))
    return caught.value


async def test_a_request_is_answered_with_at_least_one_choice() -> None:
    endpoint: Endpoint = ScriptedEndpoint(skill=1.0, model="toy")
    made = await endpoint.complete(ModelRequest(body=BODY))
    assert made["choices"][0]["message"]["content"] == "The answer is 19."
    assert made["model"] == "toy" and not endpoint.capabilities.has_token_evidence
    await endpoint.close()
    await endpoint.close()


async def test_the_seed_fixes_the_answer_and_without_one_the_request_does() -> None:
    endpoint = ScriptedEndpoint(skill=0.5)
    by_seed = [await endpoint.complete(ModelRequest(body=BODY, seed=s)) for s in (0, 0, 1, 2, 3, 4)]
    assert by_seed[0] == by_seed[1]
    assert len({made["choices"][0]["message"]["content"] for made in by_seed}) > 1
    unseeded = [await endpoint.complete(ModelRequest(body=BODY)) for _ in range(2)]
    assert unseeded[0] == unseeded[1]


async def test_sampling_parameters_under_the_contracts_names_count() -> None:
    sampling = {"max_new_tokens": 2, "thinking": {"type": "enabled"}, "top_k": 0, "temperature": 1}
    request = ModelRequest(body=BODY, sampling=sampling)
    choice = (await ScriptedEndpoint(skill=1.0).complete(request))["choices"][0]
    assert choice["finish_reason"] == "length" and choice["message"]["reasoning_content"]


async def test_errors_of_a_script_are_raised_also_those_hidden_in_a_200() -> None:
    endpoint = ScriptedEndpoint(
        script=script(
            {"error": {"status": 400, "code": "C", "message": "bad"}, "times": 1},
            {"raw_body": {"error": {"message": "overloaded"}, "choices": None}, "times": 1},
            {"raw_body": {"choices": []}, "times": 1},
            {"raw_body": "<html>", "status": 503, "times": 1},
        )
    )
    errors = [await refused(endpoint) for _ in range(4)]
    assert [error.status for error in errors] == [400, 200, 200, 503]
    assert [error.is_transient for error in errors] == [False, True, True, True]
    assert "overloaded" in str(errors[1])
    assert (await endpoint.complete(ModelRequest(body=BODY)))["choices"]


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "MissingParameter", "messages"),
        ({"messages": []}, "InvalidParameter", "messages"),
        ({"messages": [{"role": "boss", "content": ""}]}, "InvalidParameter", "messages[0].role"),
        ({**BODY, "stream": "yes"}, "InvalidParameter", "stream"),
        ({**BODY, "tool_choice": "required"}, "InvalidParameter", "tool_choice"),
        ({**BODY, "tools": [{"type": "function"}]}, "InvalidParameter", "tools[0].function.name"),
        ({**BODY, "max_tokens": 0}, "InvalidParameter", "max_tokens"),
        ({**BODY, "n": 2}, "InvalidParameter", "n"),
    ],
)
async def test_an_invalid_request_is_refused_as_a_server_would(
    body: dict[str, Any], code: str, param: str
) -> None:
    error = await refused(ScriptedEndpoint(), body)
    assert error.status == 400 and not error.is_transient and isinstance(error.body, dict)
    assert (error.body["error"]["code"], error.body["error"]["param"]) == (code, param)
    assert "Request id: " in str(error)


async def test_a_malformed_tool_schema_is_refused_by_its_place() -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "float"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    error = await refused(ScriptedEndpoint(), {**BODY, "tools": tools})
    assert "tool `f`.properties.a: type is 'float'" in str(error)


async def test_token_evidence_is_promised_only_when_the_script_has_it() -> None:
    with_ids = ScriptedEndpoint(script=script({"content": "a", "token_ids": [1]}))
    assert with_ids.capabilities.has_token_evidence
    without = ScriptedEndpoint(script=script({"content": "a"}))
    assert not without.capabilities.has_token_evidence


async def test_requests_wait_side_by_side() -> None:
    endpoint = ScriptedEndpoint(latency_s=0.5)
    started = time.monotonic()
    await asyncio.gather(*(endpoint.complete(ModelRequest(body=BODY)) for _ in range(40)))
    assert 0.5 <= time.monotonic() - started < 10  # one after the other they take 20 s


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(UsageError, match=r"skill is 1\.5"):
        ScriptedEndpoint(skill=1.5)
    with pytest.raises(UsageError, match="latency"):
        ScriptedEndpoint(latency_s=-1)


def test_the_endpoint_in_process_does_not_import_aiohttp() -> None:
    program = (
        "import sys, arkdev.endpoints.scripted.endpoint\n"
        "sys.exit('aiohttp' in sys.modules or 'openai' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
