"""PPO's critic context, OPD's teachers and the leak check in debug runs (SURFACE CRIT, OPD)."""

from __future__ import annotations

from typing import Any

import pytest

from arkdev.errors import ExitCode
from tests.integration.debugging import Rehearsal, rehearse, write_job
from tests.integration.loopback import listening
from tests.integration.test_debug import ANSWER
from tests.integration.workspace import Command, Workspace

TREATY = "the treaty of Westphalia"
ROLLOUT = """
    from arkdev import RolloutResult, rollout
    {imports}

    @rollout
    def answer(context, proxy, sample):
        client = proxy.rollout_client()
        messages = sample.model_dump()["messages"]
        {before}
        client.chat.completions.create(model="m", messages=messages)
        return RolloutResult(config={config})
"""
CRITIC = """{"critic_context": [
            CriticContext(
                qa_index=%s,
                message=ChatCompletionMessage(
                    role="user", content=f"reference answer: {sample.extra['answer']}"
                ),
            ).model_dump(exclude_none=True)
        ]}"""
OF_CRITIC = """
    from ark_sdk.types.pipeline_plugin.rollout import ChatCompletionMessage, CriticContext
"""
TEACHER = """{"teachers": {"teacher_math": {"teacher_context": [
            TeacherContext(
                qa_index=0,
                message=ChatCompletionMessage(role="user", content="reference steps: add them"),
            ).model_dump(exclude_none=True)
        ]}}}"""
OF_TEACHER = """
    from ark_sdk.types.pipeline_plugin.rollout import ChatCompletionMessage, TeacherContext
"""
OPD: dict[str, Any] = {
    "customization_type": "OPD",
    "pipeline": {
        "pipeline_type": "OPDPipeline",
        "teachers": {
            "teacher_math": {
                "model": {"foundation_model": {"name": "t", "model_version": "1"}},
            }
        },
    },
}
TOKENS = "train/critic/context/n_tokens_injected"


@pytest.fixture(autouse=True)
def two_samples(workspace: Workspace) -> None:
    question = {"role": "user", "content": "Which treaty ended the war?"}
    workspace.lines([{"messages": [question], "extra": {"answer": TREATY}}] * 2)


def rollout(workspace: Workspace, config: str, *, imports: str = "", before: str = "pass") -> None:
    text = ROLLOUT.format(imports=imports.strip(), config=config, before=before)
    workspace.write("plugins/rollout.py", text)


def ppo(workspace: Workspace, config: str, **more: Any) -> Rehearsal:
    rollout(workspace, config, imports=OF_CRITIC, **more)
    write_job(workspace, customization_type="PPO", pipeline={"pipeline_type": "PPOPipeline"})
    return rehearse(workspace)


def opd(workspace: Workspace, config: str, **request: Any) -> Rehearsal:
    rollout(workspace, config, imports=OF_TEACHER)
    write_job(workspace, **OPD)
    return rehearse(workspace, **request)


def test_what_the_critic_is_given_is_counted_shown_and_hidden_from_the_policy(
    workspace: Workspace, arkdev: Command
):
    """CRIT-01..04, 06, 07."""
    run = ppo(workspace, CRITIC % 0)
    assert run.exit_code is ExitCode.OK, run.failure
    (step,) = run.outcome.steps
    assert step.metrics[TOKENS] > 4 * 4
    assert step.estimated == (TOKENS,)
    for record in run.trajectories.values():
        assert "reference answer" not in str(record.messages)
    shown = arkdev("show", "latest", "0/0.0")
    assert "as critic sees it" in shown.out
    assert f"reference answer: {TREATY}" in shown.out
    (context,) = arkdev("show", "latest", "0/0.0", "--json").document["contexts"]
    assert [row["is_inserted"] for row in context["messages"]] == [False, True, False]


def test_a_group_of_equal_rewards_still_teaches_a_critic(workspace: Workspace):
    (step,) = ppo(workspace, CRITIC % 0).outcome.steps
    assert step.num_without_signal is None and step.message == ""
    assert not any("advantages" in name for name in step.metrics)


def test_an_empty_context_is_told_in_a_ppo_job(workspace: Workspace):
    run = ppo(workspace, "{}")
    (step,) = run.outcome.steps
    assert step.metrics[TOKENS] == 0.0
    assert any("no critic_context" in text for text in run.outcome.warnings)


def test_a_context_that_cannot_be_put_in_ends_the_job(workspace: Workspace, arkdev: Command):
    run = ppo(workspace, CRITIC % 3)
    assert run.exit_code is ExitCode.JOB_FAILED
    assert "qa_index is 3; the policy answered 1 times" in run.failure
    assert "plugins/rollout.py" in run.failure
    name = next(iter(run.trajectories))
    assert "qa_index is 3" in arkdev("show", "latest", name).out


def test_a_context_without_effect_is_told(workspace: Workspace):
    rollout(workspace, CRITIC % 0, imports=OF_CRITIC)
    write_job(workspace)
    run = rehearse(workspace)
    assert any("no effect in a GRPO job" in text for text in run.outcome.warnings)


def test_an_answer_in_the_policys_prompt_is_found_with_its_place(
    workspace: Workspace, arkdev: Command
):
    """CRIT-05: only into the critic's context, never among the messages of the policy."""
    hint = "messages.insert(0, {'role': 'system', 'content': 'Hint: ' + sample.extra['answer']})"
    run = ppo(workspace, CRITIC % 0, before=hint)
    assert run.exit_code is ExitCode.SOME_FAILED
    (warning,) = [text for text in run.outcome.warnings if "in a prompt" in text]
    assert "extra.answer" in warning and "message 0 (system)" in warning
    assert "plugins/rollout.py:" in warning and "4 times" in warning
    assert arkdev("show", "latest").out.count("is in a prompt of the policy") == 1


def test_the_text_of_a_context_in_the_policys_prompt_is_found(workspace: Workspace):
    text = "f\"reference answer: {sample.extra['answer']}\""
    leak = f"messages.append({{'role': 'user', 'content': {text}}})"
    run = ppo(workspace, CRITIC % 0, before=leak)
    assert {text.split()[0] for text in run.outcome.warnings} == {"extra.answer", "critic_context"}


BESIDE = """
    from arkdev import rollout

    @rollout
    def answer(context, proxy, sample):
        client = proxy.rollout_client()
        messages = sample.model_dump()["messages"]
        hint = {"role": "system", "content": "Hint: " + sample.extra["answer"]}
        %s
        client.chat.completions.create(model="m", messages=messages)
"""


@pytest.mark.parametrize(
    "code",
    [
        'client.chat.completions.create(model="m", messages=[hint, *messages])',
        "proxy.rollout_client().responses.create(model='m', input=[hint, *messages])",
    ],
    ids=["taken out again", "a response that was given up"],
)
def test_an_answer_in_any_prompt_of_an_attempt_is_found(workspace: Workspace, code: str):
    """The trajectory ends without the hint; the policy saw it all the same."""
    workspace.write("plugins/rollout.py", BESIDE % code)
    write_job(workspace)
    run = rehearse(workspace)
    assert run.exit_code is ExitCode.SOME_FAILED
    assert all("Hint" not in str(record.messages) for record in run.trajectories.values())
    (warning,) = [text for text in run.outcome.warnings if "in a prompt" in text]
    assert "extra.answer" in warning and "the trajectory does not end with" in warning


def test_an_answer_in_a_call_that_is_never_answered_is_found(workspace: Workspace):
    code = """
        try:
            client.chat.completions.create(model="m", messages=[hint, *messages])
        except Exception:
            pass
"""
    workspace.write("plugins/rollout.py", BESIDE % code.strip())

    def refuses_hints(number, body):
        has_hint = "Hint" in str(body["messages"])
        return (400, {"error": {"message": "no"}}) if has_hint else (200, ANSWER)

    write_job(workspace)
    with listening(refuses_hints) as server:
        run = rehearse(workspace, endpoint=f"{server.url}/v1", model="m")
    assert any("the trajectory does not end with" in text for text in run.outcome.warnings)


def test_an_answer_on_a_branch_of_a_group_is_found(workspace: Workspace):
    workspace.write(
        "plugins/rollout.py",
        """
        from arkdev import GroupRolloutResult, SingleResponse, group_rollout

        @group_rollout
        async def answer(context, proxy, sample, n_sample=1):
            client = proxy.async_rollout_client()
            ask = sample.messages[0].content
            hint = "Hint: " + sample.extra["answer"]
            await client.responses.create(model="m", input=ask, instructions=hint)
            made = [await client.responses.create(model="m", input=ask) for _ in range(n_sample)]
            return GroupRolloutResult(responses=[SingleResponse(id=one.id) for one in made])
        """,
    )
    write_job(workspace)
    run = rehearse(workspace)
    (warning,) = [text for text in run.outcome.warnings if "in a prompt" in text]
    assert "extra.answer" in warning and "2 times" in warning


def test_what_a_teacher_would_see_goes_to_its_endpoint_and_its_reply_is_shown(
    workspace: Workspace, arkdev: Command
):
    """OPD-01, 06, 08, 18..24: the student's trajectory, with what only the teacher sees."""
    with listening(lambda number, body: (200, ANSWER)) as server:
        run = opd(
            workspace, TEACHER, teacher_endpoint=f"{server.url}/v1", teacher_model="teacher-1"
        )
    assert run.exit_code is ExitCode.OK, run.failure
    bodies = [body for _, _, body in server.requests]
    assert len(bodies) == 2, "one trajectory of each group, one turn each"
    assert {body["model"] for body in bodies} == {"teacher-1"}
    for body in bodies:
        contents = [message["content"] for message in body["messages"]]
        assert contents == ["Which treaty ended the war?", "reference steps: add them"]
    for record in run.trajectories.values():
        assert "reference steps" not in str(record.messages)
    shown = arkdev("show", "latest", "0/0.0")
    assert "as teacher_math sees it" in shown.out
    assert "teacher_math before answer 0: hi" in shown.out


def test_a_teacher_that_fails_is_told_with_the_trajectory_and_ends_nothing(
    workspace: Workspace, arkdev: Command
):
    with listening(lambda number, body: (400, {"error": {"message": "no such model"}})) as server:
        run = opd(workspace, TEACHER, teacher_endpoint=f"{server.url}/v1", teacher_model="t")
    assert run.exit_code is ExitCode.OK
    assert "no such model" in arkdev("show", "latest", "0/0.0").out


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{}", ("names no teacher", "teacher_math")),
        ('{"teachers": {"teacher_art": {}}}', ("'teacher_art'", "teacher_math")),
        ('{"teachers": {"a": {}, "b": {}}}', ("2 teachers",)),
        (TEACHER.replace('content="', 'content="" and "'), ("content is empty",)),
    ],
)
def test_a_teacher_that_cannot_be_ends_the_job(
    workspace: Workspace, config: str, words: tuple[str, ...]
):
    """OPD-04, OPD-08, OPD-21, OPD-23; field case 4.3, its third part."""
    run = opd(workspace, config)
    assert run.exit_code is ExitCode.JOB_FAILED
    assert all(word in run.failure for word in words), run.failure


def test_a_teacher_endpoint_belongs_to_an_opd_job(workspace: Workspace, arkdev: Command):
    told = arkdev("debug", "--teacher-endpoint", "scripted")
    assert (told.exit_code, "has no teachers" in told.err) == (2, True)
    told = arkdev("debug", "--teacher-model", "m")
    assert (told.exit_code, "--teacher-endpoint" in told.err) == (2, True)


def test_each_trajectory_names_its_own_teacher(workspace: Workspace, arkdev: Command):
    """OPD-03: one of the job's teachers for each trajectory, another one for the next."""
    config = '{"teachers": {["teacher_math", "teacher_art"][sample.extra["index"]]: {}}}'
    rollout(workspace, config)
    question = {"role": "user", "content": "Which?"}
    workspace.lines([{"messages": [question], "extra": {"index": n}} for n in (0, 1)])
    teacher = OPD["pipeline"]["teachers"]["teacher_math"]
    pipeline = {**OPD["pipeline"], "teachers": {"teacher_math": teacher, "teacher_art": teacher}}
    write_job(workspace, **{**OPD, "pipeline": pipeline})
    run = rehearse(workspace)
    assert run.exit_code is ExitCode.OK, run.failure
    found = {r.sample_index: next(iter(r.config["teachers"])) for r in run.trajectories.values()}
    assert found == {0: "teacher_math", 1: "teacher_art"}
    assert "as teacher_art sees it" in arkdev("show", "latest", "0/1.0").out
