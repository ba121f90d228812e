"""What findings mean for arkdev."""

from __future__ import annotations

import pytest

from arkdev.endpoints.capability_check.features import Feature, features_of
from arkdev.endpoints.capability_check.records import CAPABILITIES, Finding, Support


def features(**changed: tuple[str, str]) -> dict[str, Feature]:
    """Features of a server that can do everything but (support, kind) of `changed`."""
    findings = {name: Finding(name, Support.YES, "seen") for name in CAPABILITIES}
    for name, (support, kind) in changed.items():
        findings[name] = Finding(name, Support(support), "400: no", kind=kind)
    return {feature.name: feature for feature in features_of(findings)}


def test_a_server_that_can_do_everything_enables_everything() -> None:
    assert {feature.support for feature in features().values()} == {"yes"}
    assert "training possible" in features()["token evidence"].reason


@pytest.mark.parametrize("support", ["no", "unknown"])
def test_without_chat_nothing_works(support: str) -> None:
    without = features(chat=(support, "refused"), responses=("no", "refused"))
    assert {feature.support for feature in without.values()} == {support}


def test_responses_alone_are_used_when_the_endpoint_says_so() -> None:
    alone = features(chat=("no", "refused"))
    assert 'api = "responses"' in alone["rollouts"].reason
    assert alone["rollouts with tools"].support == "unknown"


def test_a_streaming_only_server_is_good_enough() -> None:
    feature = features(chat=("partly", "streamed"))["rollouts"]
    assert feature.support == "yes"
    assert feature.reason == "streaming-only server: answers are assembled"


def test_calls_as_text_rule_tools_out() -> None:
    feature = features(tool_calls=("no", "as_text"))["rollouts with tools"]
    assert feature.support == "no" and "as text" in feature.reason


@pytest.mark.parametrize(
    ("finding", "support"),
    [
        (("partly", "refused_unless_required"), "partly"),
        (("partly", "no_call_unless_required"), "partly"),
        (("partly", "bad_arguments"), "partly"),
        (("no", "as_text_unless_required"), "no"),
        (("no", "no_call"), "no"),
        (("no", "refused"), "no"),
        (("unknown", "refused"), "unknown"),
    ],
)
def test_tools_are_as_good_as_what_was_found(finding: tuple[str, str], support: str) -> None:
    assert features(tool_calls=finding)["rollouts with tools"].support == support


def test_responses_work_by_translation_whatever_the_server_has() -> None:
    for changed in ({}, {"responses": ("no", "refused")}, {"responses_follow_up": ("no", "")}):
        feature = features(**changed)["Responses and group rollouts"]
        assert feature.support == "yes" and "by translation" in feature.reason


@pytest.mark.parametrize("kind", ["incomplete", "only_in_logprobs"])
def test_incomplete_token_evidence_is_text_only(kind: str) -> None:
    feature = features(token_ids=("partly", kind))["token evidence"]
    assert feature.support == "no" and feature.reason.startswith("text-only")


def test_reasoning_that_is_refused_is_to_be_dropped() -> None:
    changed = features(tool_results=("partly", "without_reasoning"))
    assert "drop reasoning_content" in changed["rollouts of several turns"].reason
