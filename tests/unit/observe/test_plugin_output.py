"""What plugins log and print, line by line and by attempt."""

import asyncio
import gc
import io
import logging
import logging.config
import sys
import threading
import time
import warnings
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass

import pytest

from arkdev import group_grader, rollout
from arkdev.observe import plugin_output
from arkdev.observe.attempt import AttemptPlace, current_attempt
from arkdev.observe.log_lines import MAX_CHARS, MAX_LINES, BoundedLog, LogLine
from tests.running import LINE, running

logger = logging.getLogger("plugins.weather")


@dataclass(frozen=True)
class NamedAttempt:
    name: str
    number: int = 0

    @property
    def place(self):
        return AttemptPlace((self.name,), self.number)

    def note(self, code, detail=""): ...


@contextmanager
def attempt(name, number=0):
    token = current_attempt.set(NamedAttempt(name, number))
    try:
        yield
    finally:
        current_attempt.reset(token)


def plugin_output_to(sink):
    """Take the lines as text; `lines_to` has them as they are."""
    return plugin_output.plugin_output_to(lambda line: sink(str(line)))


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


@contextmanager
def root_handlers(*handlers):
    """The root logger as a plugin finds it, with its own handlers and no others."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = handlers
    try:
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)


def test_a_record_is_taken_once_when_the_plugin_configured_logging_at_import():
    lines, shown = [], io.StringIO()
    with redirect_stdout(shown), root_handlers(logging.StreamHandler(shown)):
        with plugin_output_to(lines.append), attempt("7.1"):
            logger.info("asked")
        logger.warning("afterwards")
    assert lines == ["INFO [7.1] plugins.weather: asked"]
    assert shown.getvalue() == "afterwards\n"


@pytest.mark.parametrize(
    "configure",
    [
        lambda: logging.basicConfig(level=logging.INFO, force=True),
        lambda: logging.config.dictConfig(
            {
                "version": 1,
                "disable_existing_loggers": False,
                "handlers": {"err": {"class": "logging.StreamHandler"}},
                "root": {"handlers": ["err"], "level": "INFO"},
            }
        ),
    ],
    ids=["basicConfig", "dictConfig"],
)
def test_records_are_taken_once_when_a_rollout_configures_logging_anew(configure):
    lines = []
    with root_handlers(), plugin_output_to(lines.append), attempt("7.1"):
        configure()
        logger.info("asked")
        logger.info("again")
    assert lines == [f"INFO [7.1] plugins.weather: {text}" for text in ("asked", "again")]


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
        for byte in "位\n".encode():
            sys.stdout.buffer.write(bytes([byte]))
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


def test_a_line_says_when_what_and_which_attempt():
    lines: list[LogLine] = []
    before = time.time()
    with plugin_output.plugin_output_to(lines.append), attempt("7.1", 2):
        logger.warning("slow")
        print("half", end="")
    logged, printed = lines
    assert before <= logged.at <= time.time()
    assert (logged.level, logged.logger, logged.text) == ("WARNING", "plugins.weather", "slow")
    assert logged.place == printed.place == AttemptPlace(("7.1",), 2)
    assert (printed.level, printed.logger, printed.text) == ("PRINT", "", "half")


def test_the_rest_of_a_line_does_not_wait_for_the_next_attempt():
    lines = []
    with plugin_output_to(lines.append):
        for number in (0, 1):
            with attempt("7.1", number):
                print(f"attempt {number} ", end="")
        with attempt("7.1", 1):
            print("ends")
    assert lines == ["PRINT [7.1] attempt 1 ends", "PRINT [7.1] attempt 0 "]


def test_threads_that_know_no_attempt_are_kept_apart_and_away_from_the_terminal():
    lines = []

    def says():
        print("half a ", end="")
        barrier.wait()
        print("line")
        logger.info("asked")

    barrier = threading.Barrier(2)
    with standard_output() as own, plugin_output_to(lines.append):
        threads = [threading.Thread(target=says) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert own.getvalue() == ""
    assert sorted(lines) == [
        *["INFO [-] plugins.weather: asked"] * 2,
        *["PRINT [-] half a line"] * 2,
    ]


def test_a_long_line_is_cut_and_says_so():
    lines: list[LogLine] = []
    with plugin_output.plugin_output_to(lines.append), attempt("7.1"):
        logger.info("x" * 1_000_000)
    (line,) = lines
    assert line.num_cut == 1_000_000 - MAX_CHARS
    assert line.text == "x" * MAX_CHARS + "… (983,616 more characters)"


def test_a_secret_is_masked_before_a_long_line_is_cut():
    lines: list[LogLine] = []
    output = plugin_output.plugin_output_to(
        lines.append, mask=lambda text: text.replace("sk-0123456789", "***")
    )
    with output, attempt("7.1"):
        logger.info("x" * (MAX_CHARS - 4) + "sk-0123456789")
    (line,) = lines
    assert (line.text, line.num_cut) == ("x" * (MAX_CHARS - 4) + "***", 0)


def test_a_noisy_program_does_not_hide_the_other_lines_of_nobody(monkeypatch):
    monkeypatch.setattr("arkdev.observe.log_lines.MAX_LINES_OF_NOBODY", 2)
    lines: list[LogLine] = []
    log = BoundedLog(lines.append)
    for number in range(5):
        log.add(LogLine(0.0, "OUTPUT", "", f"noise {number}"))
    log.add(LogLine(0.0, "ERROR", "plugins.worker", "gave up"))
    log.finish()
    assert [line.text for line in lines] == [
        "noise 0",
        "noise 1",
        "gave up",
        "lines of OUTPUT left out: 3, all after the first 2",
    ]


def test_more_lines_than_are_kept_are_counted_for_each_attempt():
    lines: list[LogLine] = []
    with plugin_output.plugin_output_to(lines.append):
        for name, count in (("7.0", MAX_LINES), ("7.1", 5 * MAX_LINES)):
            with attempt(name):
                for number in range(count):
                    print(number)
    assert len(lines) == 2 * MAX_LINES + 1
    said = lines[-1]
    assert (said.place, said.level) == (AttemptPlace(("7.1",), 0), "WARNING")
    assert (said.num_left_out, said.text) == (
        4_000,
        "lines left out: 4,000, all after the first 1,000",
    )


def test_attempts_are_counted_in_bounded_memory(monkeypatch):
    monkeypatch.setattr("arkdev.observe.log_lines._MAX_ATTEMPTS", 2)
    monkeypatch.setattr("arkdev.observe.log_lines.MAX_LINES", 1)
    lines = []
    with plugin_output_to(lines.append):
        for name in ("0.0", "0.0", "1.0", "2.0"):
            with attempt(name):
                print(name)
        assert "WARNING [0.0] arkdev: lines left out: 1, all after the first 1" in lines


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


async def test_warnings_and_errors_that_nobody_awaited_go_to_the_log(capsys):
    lines = []

    async def fails():
        raise ValueError("lost")

    with plugin_output_to(lines.append):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            shown = warnings.showwarning  # catch_warnings puts its own back
            with attempt("7.1"):
                shown("coroutine 'f' was never awaited", RuntimeWarning, "plugins/a.py", 3)
        task = asyncio.create_task(fails())
        await asyncio.sleep(0)
        del task
        gc.collect()
    assert lines[0] == (
        "WARNING [7.1] RuntimeWarning: coroutine 'f' was never awaited (plugins/a.py:3)"
    )
    assert "asyncio: Task exception was never retrieved: ValueError: lost" in lines[1]
    assert capsys.readouterr().err == ""
