"""A teacher's log probabilities of the student's own tokens, from an answer as vLLM gives it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkdev.errors import PluginResultError
from arkdev.harness.distillation import opd_advantages
from arkdev.harness.teacher_logprobs import answer_spans, distilled, logprobs_of

quick = settings(max_examples=60, database=None, deadline=None, derandomize=True)
finite = st.floats(-100, 0)


def told(ids, logprobs):
    entries = [None, *({str(i): {"logprob": p}} for i, p in zip(ids[1:], logprobs, strict=True))]
    return {"prompt_token_ids": ids, "prompt_logprobs": entries}


def test_answers_are_the_runs_of_trained_tokens():
    assert answer_spans([0, 1, 1, 0, 0, 0.5, 0]) == [range(1, 3), range(5, 6)]
    assert answer_spans([0, 0]) == answer_spans([]) == []


def test_the_students_tokens_are_found_the_last_time_they_are_there():
    answer = told([7, 5, 6, 8, 5, 6, 9], [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0])
    assert logprobs_of([5, 6], answer) == [-4.0, -5.0]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "gives no prompt_logprobs"),
        (told([1, 5, 7], [-1.0, -1.0]), "does not read the student's tokens"),
        ({"prompt_token_ids": [5, 6], "prompt_logprobs": [None]}, "1 prompt_logprobs for 2"),
        (told([1, 5, 6], [-1.0, -math.inf]), "token 6 no finite"),
        ({"prompt_token_ids": [5, 6], "prompt_logprobs": [None, None]}, "token 5 no finite"),
    ],
)
def test_what_cannot_be_said_is_not_made_up(answer, words):
    with pytest.raises(PluginResultError, match=words):
        logprobs_of([5, 6], answer)


def test_the_formula_is_that_of_the_documents_token_by_token():
    found = distilled(
        "0/0.0",
        student=[-1.0, -2.0, -0.5],
        teacher=[-0.5, -3.0, -0.5],
        task_advantage=0.7,
        coefs=(1.0, 0.1),
    )
    assert found.advantages.mean == pytest.approx((0.75 + 0.6 + 0.7) / 3)
    assert (found.advantages.min, found.advantages.max) == pytest.approx((0.6, 0.75))
    assert (found.gap.min, found.gap.max) == (-0.5, 1.0)
    open_ = distilled("0/0.0", student=[-1.0], teacher=[-1.0], task_advantage=0.7, coefs=None)
    assert (open_.advantages, open_.gap.mean) == (None, 0.0)


@quick
@given(
    tokens=st.lists(st.tuples(finite, finite, st.floats(-1e3, 1e3)), min_size=1, max_size=30),
    coefs=st.tuples(st.floats(-10, 10), st.floats(-10, 10)),
    by_token=st.booleans(),
)
def test_opd_advantages_are_those_of_a_float64_reference(tokens, coefs, by_token):
    student, teacher, task = (list(column) for column in zip(*tokens, strict=True))
    s, t = np.array(student), np.array(teacher)
    a = np.array(task) if by_token else np.full(len(s), task[0])
    expected = coefs[0] * a - coefs[1] * (s - t)
    found = opd_advantages(
        task if by_token else task[0],
        student_logprobs=student,
        teacher_logprobs=teacher,
        task_reward_coef=coefs[0],
        kl_reward_coef=coefs[1],
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
