"""Flags of engines that go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from arkdev.errors import UsageError
from arkdev.flows.train_request import TrainRequest, check_engine


def test_the_python_of_vllm_is_for_vllm() -> None:
    python = Path("vllm-env/bin/python")
    check_engine(TrainRequest(start=Path(), engine="vllm", vllm_python=python))
    for engine in (None, "torch"):
        with pytest.raises(UsageError, match="--vllm-python"):
            check_engine(TrainRequest(start=Path(), engine=engine, vllm_python=python))


def test_vllm_has_no_answers_that_hang_on_nothing_beside() -> None:
    check_engine(TrainRequest(start=Path(), deterministic=True))
    with pytest.raises(UsageError, match="--deterministic"):
        check_engine(TrainRequest(start=Path(), engine="vllm", deterministic=True))


def test_a_resumed_run_has_the_python_it_was_started_with() -> None:
    python = Path("/vllm-env/bin/python")
    begun = TrainRequest(start=Path(), engine="vllm", vllm_python=python)
    resumed = TrainRequest(start=Path()).with_flags(begun.flags())
    assert isinstance(resumed, TrainRequest)
    assert resumed.vllm_python == python
