"""What plugins log and print, line by line and by attempt."""

import asyncio
import io
import logging
import sys
import threading
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass

import pytest

from arkdev import group_grader, rollout
from arkdev.observe.attempt import current_attempt
from arkdev.observe.plugin_output import plugin_output_to
from tests.running import LINE, running

logger = logging.getLogger("plugins.weather")


@dataclass(frozen=True)
class NamedAttempt:
    name: str

    def note(self, code, detail=""): ...


@contextmanager
def attempt(name):
    token = current_attempt.set(NamedAttempt(name))
    try:
        yield
    finally:
        current_attempt.reset(token)


@contextmanager
def standard_output():
    """What reaches the command's own standard output."""
    with redirect_stdout(io.StringIO()) as stream:
        yield stream


def test_lines_carry_their_attempt_and_never_reach_standard_output():
    lines = []
    with standard_output() as own, plugin_output_to(lines.append), attempt("7.1"):
        logger.info("asked %s", "北京")
        logger.debug("not shown")
        print("one\ntwo")
        print("err", file=sys.stderr)
    assert lines == [
        "INFO [7.1] plugins.weather: asked 北京",
        "PRINT [7.1] one",
        "PRINT [7.1] two",
        "PRINT [7.1] err",
    ]
    assert own.getvalue() == ""


def test_output_from_outside_an_attempt_is_left_alone():
    lines = []
    with standard_output() as own, plugin_output_to(lines.append):
        print("the command's own")
        logger.info("nobody's")
    assert (lines, own.getvalue()) == ([], "the command's own\n")


def test_everything_is_as_before_afterwards():
    root = logging.getLogger()
    before = (sys.stdout, sys.stderr, root.level, list(root.handlers))
    with pytest.raises(KeyError), plugin_output_to([].append):
        assert sys.stdout is not before[0]
        raise KeyError
    assert (sys.stdout, sys.stderr, root.level, root.handlers) == before


def test_a_level_that_the_user_lowered_stays():
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.DEBUG)
    try:
        with plugin_output_to([].append):
            assert root.level == logging.DEBUG
    finally:
        root.setLevel(before)


def test_parts_of_lines_of_two_attempts_on_one_thread_do_not_mix():
    lines = []
    with plugin_output_to(lines.append):
        for text in ("a", "b\n"):
            for name in ("0.0", "1.0"):
                with attempt(name):
                    print(f"{name}{text}", end="")
    assert lines == ["PRINT [0.0] 0.0a0.0b", "PRINT [1.0] 1.0a1.0b"]


def test_a_line_that_never_ends_is_not_lost():
    lines = []
    with plugin_output_to(lines.append), attempt("0.0"):
        print("50 %", end="\r")
        print("done", end="")
        assert lines == []
    assert lines == ["PRINT [0.0] 50 %\rdone"]


def test_a_log_call_with_a_wrong_format_does_not_fail_the_plugin(monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own handler raises
    lines = []
    with plugin_output_to(lines.append), attempt("0.0"):
        logger.info("%d degrees", "many")
        logger.info("next")
    assert lines[-1] == "INFO [0.0] plugins.weather: next"
    assert any("Logging error" in line for line in lines)


def test_what_libraries_do_with_standard_output_works():
    lines = []
    with standard_output() as own, plugin_output_to(lines.append), attempt("0.0"):
        sys.stdout.buffer.write("位\n".encode())
        sys.stdout.flush()
        assert sys.stdout.writelines(["a\n", "b\n"]) is None
        assert sys.stdout.isatty() is False
        assert sys.stdout.getvalue() == own.getvalue() == ""
    assert lines == ["PRINT [0.0] 位", "PRINT [0.0] a", "PRINT [0.0] b"]


def test_exceptions_are_logged_with_their_traceback():
    lines = []
    with plugin_output_to(lines.append), attempt("0.0"):
        try:
            raise ValueError("坏")
        except ValueError:
            logger.exception("tool broke")
    (line,) = lines
    assert line.startswith("ERROR [0.0] plugins.weather: tool broke\nTraceback")
    assert line.endswith("ValueError: 坏")


async def test_concurrent_rollouts_and_graders_are_told_apart():
    @rollout
    async def asynchronous(context, proxy, sample):
        await asyncio.sleep(0.001)
        print("rollout", sample.extra["index"])

    @rollout
    def synchronous(context, proxy, sample):
        logger.info("rollout %s", sample.extra["index"])

    @group_grader(name="judge")
    def grades(context, sample, trajectories):
        logger.info("prompt_id: %s", sample.extra["index"])
        return [1.0] * len(trajectories)

    samples = [{**LINE, "extra": {"index": index}} for index in range(6)]
    lines = []
    async with running() as run:
        with plugin_output_to(lines.append):
            await run.samples(asynchronous, grades, lines=samples)
            await run.samples(synchronous, grades, lines=samples)
    printed = sorted(line for line in lines if "rollout" in line)
    assert printed == sorted(
        [f"PRINT [{i}.0] rollout {i}" for i in range(6)]
        + [f"INFO [{i}.0] plugins.weather: rollout {i}" for i in range(6)]
    )
    graded = {line for line in lines if "prompt_id" in line}
    assert graded == {f"INFO [{i}.0 judge] plugins.weather: prompt_id: {i}" for i in range(6)}


def test_lines_of_many_threads_stay_whole():
    lines = []

    def prints(name):
        with attempt(name):
            for number in range(50):
                print(name, number)

    with plugin_output_to(lines.append):
        threads = [threading.Thread(target=prints, args=(f"{i}.0",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(lines) == sorted(f"PRINT [{i}.0] {i}.0 {n}" for i in range(4) for n in range(50))
