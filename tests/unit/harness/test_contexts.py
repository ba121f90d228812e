"""What only a critic or a teacher sees (SURFACE CRIT, OPD-18..23)."""

import pytest

from arkdev.errors import PluginResultError
from arkdev.harness.contexts import critic_context, policy_answers, teacher_context
from arkdev.runs.records import Attempt, TrajectoryRecord, TurnRecord, Verdict
from arkdev.types import ChatCompletionMessage, CriticContext, TeacherContext

SYSTEM = {"role": "system", "content": "be short"}
EXAMPLE = {"role": "assistant", "content": "an example of the dataset line"}
ASK = {"role": "user", "content": "18 + 3?"}
CALL = {"role": "assistant", "content": "let me see"}
TOOL = {"role": "tool", "content": "21"}
ANSWER = {"role": "assistant", "content": "21"}


def trajectory(config=None, messages=(SYSTEM, EXAMPLE, ASK, CALL, TOOL, ANSWER), turns=2):
    return TrajectoryRecord(
        trajectory_id="0/7.1",
        sample_index=7,
        generation=1,
        verdict=Verdict.SUCCESS,
        duration_s=1.0,
        attempts=(Attempt(Verdict.SUCCESS, 1.0),),
        messages=tuple(messages),
        config=config,
        turns=tuple(TurnRecord(0.0, 1.0) for _ in range(turns)),
    )


def entry(qa_index, content, kind=CriticContext):
    message = ChatCompletionMessage(role="user", content=content)
    return kind(qa_index=qa_index, message=message).model_dump(exclude_none=True)


def critic(*entries):
    return critic_context(trajectory({"critic_context": list(entries)}))


def teacher(*entries, name="teacher_math"):
    context = [entry(*each, TeacherContext) for each in entries]
    return teacher_context(trajectory({"teachers": {name: {"teacher_context": context}}}))


def test_qa_index_counts_the_policys_answers_and_not_the_messages():
    """Neither several messages before the first answer nor an assistant message of the line do."""
    context = critic(entry(0, "reference answer: 21"))
    assert policy_answers(trajectory()) == [3, 5]
    rendered = context.rendered(trajectory().messages, [3, 5])
    assert [m["content"] for m, is_inserted in rendered if is_inserted] == ["reference answer: 21"]
    assert [is_inserted for _, is_inserted in rendered] == [False] * 3 + [True] + [False] * 3


def test_a_teacher_sees_the_contexts_of_earlier_turns_too():
    context = teacher((1, "now say it"), (0, "first look"))
    before = context.prompt_of(trajectory().messages, [3, 5], number=0)
    assert [m["content"] for m in before] == [
        "be short",
        EXAMPLE["content"],
        "18 + 3?",
        "first look",
    ]
    later = context.prompt_of(trajectory().messages, [3, 5], number=1)
    assert [m["content"] for m in later][3:] == ["first look", "let me see", "21", "now say it"]


def test_the_conversation_of_the_policy_stays_as_it_was():
    record = trajectory({"critic_context": [entry(0, "the answer is 21")]})
    context = critic_context(record)
    context.rendered(record.messages, [3, 5])
    assert record.messages == (SYSTEM, EXAMPLE, ASK, CALL, TOOL, ANSWER)


@pytest.mark.parametrize("config", [None, {}, {"critic_context": []}, {"critic_context": None}])
def test_an_empty_context_switches_nothing_on(config):
    assert critic_context(trajectory(config)) is None


def test_a_teacher_may_have_no_context_of_its_own():
    context = teacher_context(trajectory({"teachers": {"teacher_math": {}}}))
    assert (context.reader, context.entries) == ("teacher_math", ())


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([entry(2, "late")], r"critic_context\[0\].qa_index is 2; the policy answered 2 times"),
        ([entry(-1, "early")], "qa_index is -1"),
        ([entry(0, "fine"), entry(0, "  ")], r"\[1\].message.content is empty"),
        ([entry(0, [{"type": "text", "text": "x"}])], "content is list; only text"),
        ([{"message": {"role": "user", "content": "x"}}], "qa_index"),
        ([{"qa_index": 0}], "message"),
        (["reference"], r"critic_context\[0\]"),
    ],
)
def test_what_cannot_be_put_in_is_named(entries, message):
    with pytest.raises(PluginResultError, match=message) as raised:
        critic(*entries)
    assert raised.value.message.startswith("0/7.1: ")


def test_a_teachers_context_is_no_longer_than_the_dialogue():
    with pytest.raises(PluginResultError, match="3 contexts for 2 turns"):
        teacher((0, "a"), (1, "b"), (1, "c"))


def test_a_trajectory_has_one_teacher():
    with pytest.raises(PluginResultError, match="2 teachers"):
        teacher_context(trajectory({"teachers": {"a": {}, "b": {}}}))
    with pytest.raises(PluginResultError, match="unknown key 'context'"):
        teacher_context(trajectory({"teachers": {"a": {"context": []}}}))
