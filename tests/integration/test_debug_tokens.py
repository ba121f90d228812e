"""Tokens in debug runs: what the loss is made of, a local tokenizer, OPD's and PPO's advantages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from arkdev.errors import ExitCode
from tests.integration.debugging import Quiet, numbered, rehearse, write_job
from tests.integration.loopback import listening
from tests.integration.test_debug import ANSWER
from tests.integration.test_debug_contexts import CRITIC, OF_CRITIC, OF_TEACHER, OPD, TEACHER
from tests.integration.test_debug_contexts import rollout as write_rollout
from tests.integration.workspace import Command, Workspace

MEMBERS = """
    from arkdev import group_grader

    @group_grader
    def member(context, sample, trajectories):
        return [float(number) for number in range(len(trajectories))]
"""
WITH_IDS: dict[str, Any] = {
    "content": "four words are here",
    "prompt_token_ids": [1, 2, 3],
    "token_ids": [10, 11, 12, 13],
    "logprobs": [-0.5, -0.5, -1.0, -1.0],
}


@pytest.fixture
def job(workspace: Workspace) -> Workspace:
    numbered(workspace, 2)
    workspace.write("plugins/grader.py", MEMBERS)
    write_job(workspace, graders=["plugins.grader:member"])
    return workspace


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """Words are tokens."""
    words = {"[UNK]": 0}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = tmp_path / "model"
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    return folder


def no_usage(number: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The answers have 1, 2, 3, ... words."""
    content = " ".join(["word"] * number)
    choice = {"index": 0, "message": {"role": "assistant", "content": content}}
    return 200, {**ANSWER, "choices": [{**choice, "finish_reason": "stop"}], "usage": None}


def test_token_ids_say_what_is_trained_on_and_what_is_masked(job, arkdev: Command):
    """Field case 3.4: lengths are those of the trajectories, not of their masks."""
    script = job.script(WITH_IDS)
    run = rehearse(job, script=script)
    (step,) = run.outcome.steps
    assert step.loss.counted_by == "token ids"
    assert (step.loss.num_kept, step.loss.num_masked) == (16, 12)
    assert step.metrics["train/tokens.mean"] == 7.0
    assert sum(length.loss for length in step.loss.lengths) == pytest.approx(1.0)
    shown = arkdev("show", "latest", "--step", "0", "--json").document
    shares = [share for group in shown["groups"] for share in group["loss_shares"]]
    assert shares == pytest.approx([0.25] * 4)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("token-mean", [0.1, 0.2, 0.3, 0.4]), ("seq-mean-token-mean", [0.25] * 4)],
)
def test_the_jobs_mode_says_what_an_answer_weighs(job, tokenizer, arkdev, mode, expected):
    write_job(job, graders=["plugins.grader:member"], hyperparameters={"loss_agg_mode": mode})
    with listening(no_usage) as server:
        run = rehearse(
            job, endpoint=f"{server.url}/v1", model="m", tokenizer=tokenizer, concurrency=1
        )
    (step,) = run.outcome.steps
    assert (step.loss.mode, step.loss.counted_by) == (mode, "a local tokenizer")
    assert [length.loss for length in step.loss.lengths] == pytest.approx(expected)
    told = arkdev("show", "latest").out
    assert f"loss_agg_mode {mode}" in told and "no token ids and no usage" in told
    assert "40.0 %" in arkdev("show", "latest", "--step", "0").out or mode != "token-mean"


def test_where_nobody_counts_tokens_that_is_said_and_no_share_is_made_up(job, arkdev: Command):
    with listening(no_usage) as server:
        run = rehearse(job, endpoint=f"{server.url}/v1", model="m")
    (step,) = run.outcome.steps
    assert (step.loss.counted_by, step.loss.num_uncounted) == (None, 4)
    assert not any("loss_share" in name or "tokens" in name for name in step.metrics)
    shown = " ".join(arkdev("show", "latest").out.split())
    assert "4 trajectories without token counts" in shown


def test_a_resumed_step_knows_the_tokens_of_its_first_part(job):
    class Interrupts(Quiet):
        def on_group(self, record: Any) -> None:
            raise OSError("the display is gone")

    script = job.script(WITH_IDS)
    whole = rehearse(job, script=script)
    with pytest.raises(BaseExceptionGroup):
        rehearse(job, Interrupts(), script=script, out=job.root / "cut")
    run = rehearse(job, resume=str(job.root / "cut"))
    assert run.outcome.steps[0].loss == whole.outcome.steps[0].loss


def test_a_mode_that_nobody_knows_is_told(job, arkdev: Command):
    write_job(job, graders=["plugins.grader:member"], hyperparameters={"loss_agg_mode": "odd"})
    told = arkdev("debug", "--steps", "1")
    assert told.exit_code == 0 and "loss_agg_mode 'odd': arkdev knows token-mean" in told.err
    assert "Loss of step" not in told.out


TOKENS_GRADER = """
    from arkdev import GroupGraderResult, group_grader

    @group_grader
    def tokens(context, sample, trajectories):
        return GroupGraderResult(rewards=[1, 0], tok_advantages=[[1.0] * {number}] * 2)
"""


def test_tok_advantages_without_token_ids_are_compared_with_a_local_count(
    job, tokenizer, arkdev: Command
):
    """A list of 4,000 numbers for about six words is told, and that the count is approximate."""
    for name, number in (("far", 4000), ("near", 30)):
        job.write(f"plugins/{name}.py", TOKENS_GRADER.format(number=number))
    write_job(job, graders=["plugins.far:tokens"])
    run = rehearse(job, tokenizer=tokenizer)
    told = " ".join(run.outcome.warnings)
    assert "checked approximately" in told and "without the chat template" in told
    assert (
        "tok_advantages of tokens: their number is far from" in told and "4,000 for about" in told
    )
    write_job(job, graders=["plugins.near:tokens"])
    assert "is far from" not in " ".join(rehearse(job, tokenizer=tokenizer).outcome.warnings)
    (warning,) = rehearse(job).outcome.warnings
    assert "was not checked" in warning and "--tokenizer" in warning


def test_what_a_critic_is_given_is_counted_by_the_tokenizer(workspace: Workspace, tokenizer):
    """CRIT-06: "reference answer: the treaty of Westphalia" has 7 words and signs."""
    question = {"role": "user", "content": "Which treaty?"}
    workspace.lines([{"messages": [question], "extra": {"answer": "the treaty of Westphalia"}}] * 2)
    write_rollout(workspace, CRITIC % 0, imports=OF_CRITIC)
    write_job(workspace, customization_type="PPO", pipeline={"pipeline_type": "PPOPipeline"})
    (step,) = rehearse(workspace, tokenizer=tokenizer).outcome.steps
    assert step.metrics["train/critic/context/n_tokens_injected"] == 4 * 7
    assert step.estimated == ()


def test_a_prompt_that_is_longer_than_the_model_takes_is_told(job, tokenizer):
    config = tokenizer / "tokenizer_config.json"
    config.write_text(json.dumps({"model_max_length": 1}), encoding="utf-8")
    told = rehearse(job, tokenizer=tokenizer, steps=1).outcome.warnings
    assert any(text.startswith("prompts are longer than the 1 tokens") for text in told)
    config.write_text(json.dumps({"model_max_length": 4000}), encoding="utf-8")
    told = rehearse(job, tokenizer=tokenizer, steps=1).outcome.warnings
    assert any("prompt and max_new_tokens 4,096 together exceed the 4,000" in text for text in told)
    config.write_text(json.dumps({"model_max_length": 1e30}), encoding="utf-8")
    assert rehearse(job, tokenizer=tokenizer, steps=1).outcome.warnings == ()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Qwen/Qwen3-8B", ("there is no such file", "arkdev downloads none")),
        ("plugins", ("there is no file tokenizer.json",)),
        ("job.yaml", ("no tokenizer of the tokenizers library", "job.yaml")),
    ],
)
def test_what_is_no_tokenizer_is_an_error_with_advice(job, arkdev: Command, name, words):
    told = arkdev("debug", "--tokenizer", name)
    assert told.exit_code == 2
    assert all(word in told.err for word in words), told.err


def test_ppos_advantages_are_not_made_up(workspace: Workspace, arkdev: Command):
    question = {"role": "user", "content": "Which treaty?"}
    workspace.lines([{"messages": [question], "extra": {"answer": "the treaty of Westphalia"}}] * 2)
    workspace.write("plugins/grader.py", MEMBERS)
    write_rollout(workspace, CRITIC % 0, imports=OF_CRITIC)
    write_job(
        workspace,
        graders=["plugins.grader:member"],
        customization_type="PPO",
        pipeline={"pipeline_type": "PPOPipeline"},
    )
    rehearse(workspace)
    shown = arkdev("show", "latest", "--step", "0", "--json").document
    assert {a for group in shown["groups"] for a in group["advantages"]} == {None}
    assert shown["groups"][0]["rewards"] == [0.0, 1.0]
    assert any("value model, which a debug run has not" in note for note in shown["notes"])
    assert "critic's tokens" in arkdev("show", "latest", "--step", "0").out


def opd_job(workspace: Workspace, **coefs: float) -> None:
    workspace.lines([{"messages": [{"role": "user", "content": "Which?"}]}])
    workspace.write("plugins/grader.py", MEMBERS)
    write_rollout(workspace, TEACHER, imports=OF_TEACHER)
    write_job(
        workspace,
        graders=["plugins.grader:member"],
        hyperparameters={"batch_size": 1, **coefs},
        **OPD,
    )


def teacher(number: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Reads the student's tokens 10..13 at the end of its prompt, with -0.75 each."""
    if "prompt_logprobs" not in body:
        return 200, ANSWER
    ids = [90, 91, 10, 11, 12, 13, 99]
    entries = [None, *({str(each): {"logprob": -0.75}} for each in ids[1:])]
    return 200, {**ANSWER, "prompt_token_ids": ids, "prompt_logprobs": entries}


def with_teacher(workspace: Workspace, url: str, *, evidence: str = "true") -> None:
    workspace.write(
        "arkworkspace.toml",
        f"""
        [endpoints.teacher]
        base_url = "{url}/v1"
        model = "t"
        has_token_evidence = {evidence}
        """,
    )


def test_opds_advantage_is_that_of_the_students_own_tokens(workspace: Workspace, arkdev: Command):
    """OPD-09, 12: A = 1 x task - 0.1 x (s - t), with s of -0.5, -0.5, -1, -1 and t of -0.75."""
    opd_job(workspace, task_reward_coef=1.0, kl_reward_coef=0.1)
    script = workspace.script(WITH_IDS)
    with listening(teacher) as server:
        with_teacher(workspace, server.url)
        run = rehearse(workspace, script=script, teacher_endpoint="teacher")
    assert run.exit_code is ExitCode.OK, run.failure
    asked = [body for _, _, body in server.requests if "prompt_logprobs" in body]
    assert [body["messages"][-1]["content"] for body in asked] == ["four words are here"]
    assert asked[0]["messages"][-2]["content"] == "reference steps: add them"
    (row,) = arkdev("show", "latest", "--step", "0", "--json").document["distilled"]
    task = -(0.5**0.5)  # of rewards 0 and 1, but for 1e-6
    assert (row["trajectory_id"], row["num_tokens"], row["problem"]) == ("0/0.0", 4, "")
    assert row["gap"] == {"mean": 0.0, "min": -0.25, "max": 0.25}
    expected = {"mean": task, "min": task - 0.025, "max": task + 0.025}
    assert row["advantages"] == pytest.approx(expected, abs=1e-5)
    assert "student - teacher 0.000 a token" in arkdev("show", "latest", "--step", "0").out


def test_an_open_coefficient_leaves_the_difference_and_no_advantage(workspace, arkdev: Command):
    opd_job(workspace, task_reward_coef=1.0)
    script = workspace.script(WITH_IDS)
    with listening(teacher) as server:
        with_teacher(workspace, server.url)
        rehearse(workspace, script=script, teacher_endpoint="teacher")
    (row,) = arkdev("show", "latest", "--step", "0", "--json").document["distilled"]
    assert (row["advantages"], row["gap"]["mean"]) == (None, 0.0)
    assert "leaves a coefficient open" in arkdev("show", "latest", "--step", "0").out


@pytest.mark.parametrize(
    ("script", "evidence", "words"),
    [
        (WITH_IDS, "false", "not defined with has_token_evidence"),
        ({"content": "hi"}, "true", "the student's endpoint gives no token ids"),
        (
            {**WITH_IDS, "token_ids": [10, 11, 12, 14]},
            "true",
            "does not read the student's tokens as they were written",
        ),
    ],
)
def test_why_a_trajectory_is_not_compared_is_said(workspace, arkdev, script, evidence, words):
    opd_job(workspace, task_reward_coef=1.0, kl_reward_coef=0.1)
    path = workspace.script(script)
    with listening(teacher) as server:
        with_teacher(workspace, server.url, evidence=evidence)
        run = rehearse(workspace, script=path, teacher_endpoint="teacher")
    assert run.exit_code is ExitCode.OK
    assert words in arkdev("show", "latest", "--step", "0").out.replace("\n", " ")


def test_without_a_teacher_the_second_part_is_said_to_be_missing(workspace, arkdev: Command):
    opd_job(workspace, task_reward_coef=1.0, kl_reward_coef=0.1)
    rehearse(workspace)
    shown = arkdev("show", "latest", "--step", "0")
    assert "task advantage" in shown.out
    assert "needs a --teacher-endpoint with token ids and prompt_logprobs" in shown.out


def test_answers_of_one_length_are_one_row(job, arkdev: Command):
    told = arkdev("debug", "--script", str(job.script(WITH_IDS)))
    (row,) = [line for line in told.out.splitlines() if "4 tokens" in line]
    assert row.split() == ["4", "tokens", "4", "100.0", "%", "100.0", "%"]
    assert "--step 0   (each trajectory of it)" in told.out
