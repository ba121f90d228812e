import pytest

from arkdev.errors import RunError
from arkdev.runs.saved_models import SavedModels


def write(folder):
    (folder / "model.safetensors").write_bytes(b"weights")


def saved(tmp_path, scores, *, limit=None):
    models = SavedModels(tmp_path, run_id="mine", limit=limit)
    for step, score in scores.items():
        models.save(step, write, score=score, facts={"base_model": "tiny"})
    return models


def steps(models):
    return [snapshot.step for snapshot in models.all()]


@pytest.mark.parametrize(
    ("limit", "kept"), [(None, [5, 4, 3, 2, 1]), (3, [5, 4, 2]), (2, [5, 2]), (1, [5, 2])]
)
def test_the_best_and_the_last_are_kept_and_of_the_others_the_newest(tmp_path, limit, kept):
    models = saved(tmp_path, {1: 0.2, 2: 0.9, 3: 0.9, 4: 0.1, 5: None}, limit=limit)
    assert steps(models) == kept
    assert models.best().step == 2


def test_a_limit_of_one_keeps_step_10000_of_9900_and_10000(tmp_path):
    """Field case 8.2."""
    assert steps(saved(tmp_path, {9900: 0.1, 10000: 0.2}, limit=1)) == [10000]


def test_a_model_is_chosen_by_name_or_steps(tmp_path):
    models = saved(tmp_path, {2: 0.9, 10: 0.5})
    assert [models.chosen(which).step for which in ("best", "last", "2")] == [2, 10, 2]
    assert models.chosen("best").facts == {"base_model": "tiny", "score": 0.9}


@pytest.mark.parametrize(
    ("scores", "which", "said", "hint"),
    [
        ({}, "last", "has saved no model yet", "save_every_n_steps"),
        ({1: None}, "best", "none of those that it saved was validated", "there is step 1"),
        ({1: 0.5, 20: 0.5}, "3", "no saved model of 3 steps", "there is step 20, step 1"),
    ],
)
def test_what_is_not_there_is_an_error_that_says_what_is(tmp_path, scores, which, said, hint):
    with pytest.raises(RunError) as caught:
        saved(tmp_path, scores).chosen(which)
    assert said in str(caught.value)
    assert hint in caught.value.hint


def test_a_damaged_model_is_not_chosen(tmp_path):
    models = saved(tmp_path, {1: 0.5, 2: 0.6})
    (models.all()[0].folder / "model.safetensors").write_bytes(b"weightz")
    with pytest.raises(RunError, match=r"model\.safetensors is not what was saved") as caught:
        models.chosen("last")
    assert "step 1" in caught.value.hint
