"""The OPD formula against numbers worked by hand (field case 4.4, the sampled path; OPD-09)."""

import math

import pytest

from arkdev.errors import PluginResultError
from arkdev.harness.distillation import opd_advantages

STUDENT, TEACHER = [-1.0, -2.0, -0.5], [-0.5, -3.0, -0.5]


def advantages(task=0.7, *, student=STUDENT, teacher=TEACHER, task_coef=1.0, kl_coef=0.1):
    return opd_advantages(
        task,
        student_logprobs=student,
        teacher_logprobs=teacher,
        task_reward_coef=task_coef,
        kl_reward_coef=kl_coef,
    )


def test_field_case_4_4_the_sampled_path_gives_the_hand_worked_numbers():
    assert advantages() == pytest.approx([0.75, 0.6, 0.7], abs=1e-12)


def test_an_advantage_of_each_token_takes_the_place_of_the_trajectorys():
    assert advantages([0.7, 0.0, -1.0]) == pytest.approx([0.75, -0.1, -1.0], abs=1e-12)


def test_without_a_weight_a_part_has_no_effect():
    assert advantages(kl_coef=0.0) == [0.7, 0.7, 0.7]
    assert advantages(task_coef=0.0, kl_coef=1.0) == [0.5, -1.0, 0.0]


def test_a_student_that_agrees_with_its_teacher_has_the_tasks_advantage_alone():
    assert advantages(teacher=STUDENT) == [0.7, 0.7, 0.7]


def test_lengths_that_differ_are_refused_with_both():
    with pytest.raises(PluginResultError, match="2 teacher_logprobs for 3 student_logprobs"):
        advantages(teacher=[-1.0, -1.0])
    with pytest.raises(PluginResultError, match="1 task advantages for 3"):
        advantages([0.5])


@pytest.mark.parametrize("bad", [-math.inf, math.nan])
def test_a_token_that_the_teacher_cannot_say_is_refused_not_made_up(bad):
    with pytest.raises(PluginResultError, match=r"teacher_logprobs\[1\]"):
        advantages(teacher=[-1.0, bad, -1.0])
