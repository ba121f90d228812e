"""The scripted model as a whole: request check, script, policy. Endpoint and server share it."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from typing import Any

from arkdev.endpoints.scripted.completion import (
    arguments_json,
    envelope,
    estimate_prompt_tokens,
    estimate_tokens,
    usage_of,
)
from arkdev.endpoints.scripted.conversation import read_conversation
from arkdev.endpoints.scripted.policy import (
    DEFAULT_SKILL,
    answer,
    canonical_messages,
    digest_of,
    seed_of_request,
)
from arkdev.endpoints.scripted.schema import SchemaError
from arkdev.endpoints.scripted.script import Script, ScriptedAnswer, ScriptedError
from arkdev.endpoints.scripted.tools import read_tools
from arkdev.endpoints.serving.replies import Reply, refusal
from arkdev.endpoints.serving.requests import (
    RequestError,
    check_request,
    error_body,
    error_type,
)
from arkdev.errors import UsageError


class ScriptedModel:
    """Answers requests by its script, then by its policy. Safe to use from several threads.

    The only state is how often each entry of the script with ``times`` has answered. Raises
    `UsageError` when `skill` is not in 0..1 or `latency_s` is negative.
    """

    def __init__(
        self,
        *,
        skill: float = DEFAULT_SKILL,
        script: Script | None = None,
        latency_s: float = 0.0,
        model: str = "scripted",
    ) -> None:
        if not 0 <= skill <= 1:
            raise UsageError(f"skill is {skill}", hint="Give a number in 0..1.")
        if latency_s < 0:
            raise UsageError(f"the latency is {latency_s} s", hint="Give 0 or more seconds.")
        self.skill = skill
        self.script = script or Script(answers=[])
        self.latency_s = latency_s
        self.model = model
        self._used: Counter[int] = Counter()
        self._lock = threading.Lock()

    def reply(self, body: object, *, seed: int | None = None) -> Reply:
        """Answer a request body; without a seed, its own ``seed`` or a hash of it counts."""
        try:
            return self._answered(check_request(body), seed)
        except RequestError as error:
            return refusal(error)
        except SchemaError as error:
            return refusal(RequestError(f"{error}.", code="InvalidParameter"))

    def _answered(self, request: dict[str, Any], seed: int | None) -> Reply:
        request.setdefault("model", self.model)
        if seed is None:
            seed = request["seed"] if "seed" in request else seed_of_request(request)
        entry = self._next_entry(request) if self.script.answers else None
        if entry is None:
            return Reply(answer(request, seed=seed, skill=self.skill), self.latency_s)
        return self._scripted(entry, request, seed=seed)

    def _next_entry(self, request: dict[str, Any]) -> ScriptedAnswer | None:
        conversation = read_conversation(request["messages"])
        with self._lock:
            for index, entry in enumerate(self.script.answers):
                is_used_up = entry.times is not None and self._used[index] >= entry.times
                if not is_used_up and entry.fits(conversation):
                    self._used[index] += 1
                    return entry
        return None

    def _scripted(self, entry: ScriptedAnswer, request: dict[str, Any], *, seed: int) -> Reply:
        latency_s = self.latency_s if entry.latency_s is None else entry.latency_s
        digest = digest_of(canonical_messages(request["messages"]), seed)
        if entry.error is not None:
            body = _error_envelope(entry.error, request_id=digest)
            return Reply(body, latency_s, status=entry.error.status, headers=entry.error.headers)
        if "raw_body" in entry.model_fields_set:
            # a copy: whoever receives it may change it, and an entry answers more than once
            return Reply(copy.deepcopy(entry.raw_body), latency_s, status=entry.status)
        return Reply(_answer_of(entry, request, digest=digest), latency_s)


def _error_envelope(error: ScriptedError, *, request_id: str) -> dict[str, Any]:
    described = RequestError(error.message, code=error.code, param=error.param, status=error.status)
    body = error_body(described, request_id=request_id)
    body["error"]["type"] = error.type or error_type(error.status)
    return body


def _answer_of(entry: ScriptedAnswer, request: dict[str, Any], *, digest: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": entry.content}
    if entry.reasoning_content is not None:
        message["reasoning_content"] = entry.reasoning_content
    calls = [
        {
            "id": call.id or f"call_{digest}{index}",
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": call.arguments
                if isinstance(call.arguments, str)
                else arguments_json(call.arguments),
            },
        }
        for index, call in enumerate(entry.tool_calls)
    ]
    if calls:
        message["tool_calls"] = calls
    body = envelope(
        message,
        finish_reason=entry.finish_reason or ("tool_calls" if calls else "stop"),
        usage=entry.usage if "usage" in entry.model_fields_set else _usage(entry, request, calls),
        digest=digest,
        model=request["model"],
    )
    _add_evidence(body, entry)
    return body


def _usage(
    entry: ScriptedAnswer, request: dict[str, Any], calls: list[dict[str, Any]]
) -> dict[str, int]:
    if entry.prompt_token_ids is not None:
        prompt = len(entry.prompt_token_ids)
    else:
        tools = request.get("tools")
        prompt = estimate_prompt_tokens(
            canonical_messages(request["messages"]),
            len(request["messages"]),
            read_tools(tools).text if tools else "",
        )
    if entry.token_ids is not None:
        return usage_of(prompt, len(entry.token_ids))
    said = [entry.content or "", entry.reasoning_content or ""]
    said += [part for call in calls for part in call["function"].values()]
    return usage_of(prompt, sum(map(estimate_tokens, said)))


def _add_evidence(body: dict[str, Any], entry: ScriptedAnswer) -> None:
    """Token ids and logprobs where vLLM puts them."""
    choice = body["choices"][0]
    if entry.prompt_token_ids is not None:
        body["prompt_token_ids"] = list(entry.prompt_token_ids)
    if entry.token_ids is not None:
        choice["token_ids"] = list(entry.token_ids)
    if entry.logprobs is not None:
        pairs = zip(entry.token_ids or [], entry.logprobs, strict=True)
        choice["logprobs"] = {
            "content": [
                {
                    "token": f"token_id:{token}",
                    "logprob": logprob,
                    "bytes": None,
                    "top_logprobs": [],
                }
                for token, logprob in pairs
            ]
        }
