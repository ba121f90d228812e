"""What the findings about a server mean for the parts of arkdev."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from arkdev.endpoints.capability_check.records import CAPABILITIES, Finding, Support

Findings = Mapping[str, Finding]


@dataclass(frozen=True)
class Feature:
    """Whether a part of arkdev works with this server, and why."""

    name: str
    support: Support
    reason: str


def features_of(findings: Findings) -> list[Feature]:
    """Return every feature; `findings` has one for each of `CAPABILITIES`."""
    missing = CAPABILITIES.keys() - findings.keys()
    if missing:
        raise KeyError(f"no finding for {', '.join(sorted(missing))}")
    return [
        Feature(name, *judge(findings))
        for name, judge in (
            ("rollouts", _rollouts),
            ("rollouts with tools", _tools),
            ("rollouts of several turns", _several_turns),
            ("Responses and group rollouts", _responses),
            ("raw clients that stream", _streaming),
            ("judges with structured output", _structured_output),
            ("token evidence", _token_evidence),
            ("token counts", _token_counts),
        )
    ]


_Judgement = tuple[Support, str]


def _has_responses_alone(findings: Findings) -> bool:
    return findings["chat"].support is Support.NO and findings["responses"].support is Support.YES


def _rollouts(findings: Findings) -> _Judgement:
    chat = findings["chat"]
    if _has_responses_alone(findings):
        return Support.PARTLY, 'only by the Responses API: set api = "responses" for this endpoint'
    if chat.support in (Support.NO, Support.UNKNOWN):
        return chat.support, f"every rollout needs chat: {chat.evidence}"
    if chat.kind == "streamed":
        return Support.YES, "streaming-only server: answers are assembled"
    if chat.kind == "empty":
        return Support.PARTLY, "answers come, but the one that was asked for was empty"
    return Support.YES, "answers come in one piece, as asked"


def _after_chat(judge: Callable[[Findings], _Judgement]) -> Callable[[Findings], _Judgement]:
    """Nothing else works where chat does not; through Responses it may, but was not asked."""

    def judged(findings: Findings) -> _Judgement:
        if _has_responses_alone(findings):
            return Support.UNKNOWN, "not asked for through the Responses API"
        chat = findings["chat"].support
        if chat in (Support.NO, Support.UNKNOWN):
            return chat, "needs chat"
        return judge(findings)

    return judged


@_after_chat
def _tools(findings: Findings) -> _Judgement:
    calls, parallel = findings["tool_calls"], findings["parallel_tool_calls"]
    if calls.kind.startswith("as_text"):
        return (
            Support.NO,
            "tool calls come back as text: rollouts that rely on tool_calls will see none",
        )
    if calls.kind == "refused_unless_required":
        return Support.PARTLY, 'only with tool_choice "required": the server refuses "auto"'
    if calls.kind == "no_call_unless_required":
        return Support.PARTLY, 'the server can; of its own accord ("auto") the model called none'
    if calls.kind == "bad_arguments":
        return Support.PARTLY, "calls come, but not as the tool's schema says"
    if calls.kind == "no_call":
        return Support.NO, "no tool call came: the model or the server's tool parser cannot"
    if calls.support is not Support.YES:
        return calls.support, f"tools are refused: {calls.evidence}"
    if parallel.support is Support.YES:
        return Support.YES, "tool_calls are there, also several in one answer"
    return Support.YES, "tool_calls are there, one in each answer"


@_after_chat
def _several_turns(findings: Findings) -> _Judgement:
    results = findings["tool_results"]
    if results.support is Support.YES:
        return Support.YES, "tool results and reasoning_content go back as they are"
    if results.kind == "without_reasoning":
        return Support.PARTLY, "drop reasoning_content from history: the server refuses it"
    return results.support, f"a tool's result cannot be handed back: {results.evidence}"


@_after_chat
def _responses(findings: Findings) -> _Judgement:
    how = "Responses by translation to chat; arkdev keeps the history"
    if findings["responses"].support is not Support.YES:
        return Support.YES, f"{how}; the server has no Responses API of its own"
    if findings["responses_follow_up"].support is Support.YES:
        return Support.YES, f"{how}; the server has a Responses API too and keeps state"
    return Support.YES, f"{how}; the server has a Responses API too, but keeps no state"


@_after_chat
def _streaming(findings: Findings) -> _Judgement:
    streams = findings["streaming"].support is Support.YES
    own = "streams too" if streams else "need not stream"
    return Support.YES, f"arkdev makes the events from the whole answer; the server {own}"


@_after_chat
def _structured_output(findings: Findings) -> _Judgement:
    output = findings["structured_output"]
    if output.support is Support.YES:
        return Support.YES, "json_schema is kept"
    if output.kind == "cut":
        return Support.PARTLY, "json_schema is accepted; this model did not come to an end"
    if output.support is Support.PARTLY:
        return Support.PARTLY, "json_schema is accepted and not enforced: check what comes"
    return output.support, f"ask for JSON in the prompt: {output.evidence}"


@_after_chat
def _token_evidence(findings: Findings) -> _Judgement:
    ids = findings["token_ids"]
    if ids.support is Support.YES:
        return Support.YES, "training possible: set has_token_evidence = true for this endpoint"
    if ids.support is Support.UNKNOWN:
        return Support.UNKNOWN, ids.evidence
    why = {
        "incomplete": "the ids do not cover the answer",
        "only_in_logprobs": "the prompt's ids are missing",
    }.get(ids.kind, "no token ids")
    return Support.NO, f"text-only: rollouts and graders work, training does not ({why})"


@_after_chat
def _token_counts(findings: Findings) -> _Judgement:
    usage = findings["usage"]
    if usage.support is Support.YES:
        return Support.YES, "reports count tokens"
    return usage.support, "reports show token counts as unknown"
