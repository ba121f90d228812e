"""What an unknown name was probably meant to be."""

import pytest

from arkdev.job.spelling import unknown_name

KNOWN = ("clip_ratio_high", "clip_ratio_low", "kl_coefficient", "num_generations")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("kl_coef", "did you mean 'kl_coefficient'?"),
        ("clip", "did you mean 'clip_ratio_high' or 'clip_ratio_low'?"),
        ("num_generation", "did you mean 'num_generations'?"),
        ("c", "known: clip_ratio_high"),
    ],
)
def test_beginnings_and_slips_are_recognised(word, meant):
    assert meant in unknown_name("hyperparameter", word, known=KNOWN)
