"""What the hyperparameters of a job become, and the learning rate of each step."""

import pytest

from arkdev.backends.local.settings import (
    KLPlace,
    LRSchedule,
    PolicyLoss,
    UpdateSettings,
    learning_rate,
)
from arkdev.errors import ConfigurationError


def test_hyperparameters_are_read_as_job_files_write_them():
    settings = UpdateSettings.from_hyperparameters(
        {
            "lr": "1e-5",
            "lr_warmup_steps": "5",
            "clip_ratio_high": 0.28,
            "num_iterations_per_batch": 2,
            "policy_loss": "mis_pg",
            "kl_place": "reward",
            "batch_size": 32,
        }
    )

    assert (settings.lr, settings.lr_warmup_steps) == (1e-5, 5)
    assert settings.policy_loss is PolicyLoss.MIS_PG
    assert settings.kl_place is KLPlace.REWARD
    assert settings.clip_ratio_low == 0.2, "not given: the default stays"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"lr": "fast"}, "lr='fast'"),
        ({"policy_loss": "ppo"}, "policy_loss='ppo'"),
        ({"num_iterations_per_batch": 1.5}, "num_iterations_per_batch=1.5"),
        ({"lr": 0}, "lr=0.0: a number above 0 is expected"),
        ({"lr": "nan"}, "lr=nan"),
        ({"clip_ratio_low": 1.2}, "clip_ratio_low=1.2: a number from 0 to 1"),
        ({"correction_floor": 3}, "correction_floor is above correction_cap"),
    ],
)
def test_what_cannot_be_meant_is_named(values, told):
    with pytest.raises(ConfigurationError) as caught:
        UpdateSettings.from_hyperparameters(values)

    assert told in caught.value.message


def test_the_recommended_band_of_mis_pg_is_taken():
    settings = UpdateSettings.from_hyperparameters(
        {"policy_loss": "mis_pg", "clip_ratio_low": "0.5", "clip_ratio_high": "0.5"}
    )

    assert (settings.clip_ratio_low, settings.clip_ratio_high) == (0.5, 0.5)


def test_the_options_of_a_word_are_told():
    with pytest.raises(ConfigurationError) as caught:
        UpdateSettings.from_hyperparameters({"policy_loss": "ppo"})

    assert "ppo_is, mis_pg, tis_pg" in caught.value.hint


def rates(schedule, *, warmup=2, num_steps=6):
    settings = UpdateSettings(
        lr=1.0, lr_warmup_steps=warmup, num_steps=num_steps, lr_schedule=schedule
    )
    return [learning_rate(step, settings=settings) for step in range(num_steps)]


def test_the_warm_up_begins_above_0_and_ends_whole():
    assert rates(LRSchedule.CONSTANT) == pytest.approx([1 / 3, 2 / 3, 1, 1, 1, 1])


def test_schedules_fall_from_the_end_of_the_warm_up():
    assert rates(LRSchedule.LINEAR) == pytest.approx([1 / 3, 2 / 3, 1, 0.75, 0.5, 0.25])
    cosine = rates(LRSchedule.COSINE)
    assert cosine[2:] == pytest.approx([1, 0.853553, 0.5, 0.146447], abs=1e-6)


def test_a_warm_up_longer_than_the_job_is_no_error():
    assert rates(LRSchedule.COSINE, warmup=9, num_steps=3) == pytest.approx([0.1, 0.2, 0.3])
