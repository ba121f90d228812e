"""Metrics sent elsewhere: whatever a sink does, the training goes on and is told once."""

import sys
import threading
from pathlib import Path

import pytest

from arkdev.errors import MissingExtraError
from arkdev.observe.metric_sinks.sinks import (
    NAMES,
    LoggedRun,
    SinkThread,
    Told,
    check_installed,
    load,
)

RUN = LoggedRun("20260101T000000Z-train-abcd", Path("nowhere"), "project")


class Kept:
    """A sink that keeps what it is given."""

    place = "here"

    def __init__(self, problem=None, *, hangs=None):
        self.logged, self.ends = [], []
        self._problem, self._hangs = problem, hangs

    def log(self, metrics, *, step):
        if self._hangs is not None:
            self._hangs.wait(60)
        if self._problem is not None:
            raise self._problem
        self.logged.append((step, metrics))

    def close(self, *, has_failed):
        self.ends.append(has_failed)


@pytest.fixture
def heard():
    return []


def opened(sink, heard):
    def open_sink(run):
        if isinstance(sink, Exception):
            raise sink
        return sink

    told = Told(
        tell=lambda text: heard.append(("told", text)), warn=lambda text: heard.append(text)
    )
    return SinkThread("wandb", open_sink, RUN, told)


def test_finite_numbers_arrive_in_order_under_their_own_names(heard):
    sink = Kept()
    thread = opened(sink, heard)
    thread.log({"train/reward->final_reward.mean": 0.5, "x": float("nan"), "y": None}, step=0)
    thread.log({"test/reward->final_reward.mean": 1}, step=0)
    thread.close(has_failed=False)
    assert sink.logged == [
        (0, {"train/reward->final_reward.mean": 0.5}),
        (0, {"test/reward->final_reward.mean": 1.0}),
    ]
    assert (sink.ends, heard) == ([False], [("told", "metrics also go to wandb: here")])


@pytest.mark.parametrize("sink", [OSError("no space left"), Kept(OSError("no space left"))])
def test_a_sink_that_fails_is_warned_of_once_and_gets_nothing_more(heard, sink):
    thread = opened(sink, heard)
    for step in range(5):
        thread.log({"x": 1.0}, step=step)
    thread.close(has_failed=False)
    warnings = [text for text in heard if isinstance(text, str)]
    assert warnings == ["--log-to wandb gets no more metrics: OSError: no space left"]


def test_a_sink_that_hangs_is_left_behind(heard):
    release = threading.Event()
    thread = opened(Kept(hangs=release), heard)
    thread.log({"x": 1.0}, step=0)
    thread.close(has_failed=False, within_s=0.01)
    assert heard[-1] == "--log-to wandb gets no more metrics: no answer within 0.01 s"
    release.set()


@pytest.mark.parametrize("name", NAMES)
def test_a_package_that_is_not_installed_is_named_with_its_extra(monkeypatch, name):
    for module in [each for each in sys.modules if each.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, f"arkdev.observe.metric_sinks.{name}_sink", raising=False)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "site-packages" not in p])
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    for ask in (check_installed, lambda names: load(*names)):
        with pytest.raises(MissingExtraError) as caught:
            ask([name])
        assert caught.value.hint == f"pip install 'arkdev[{name}]'"
