"""A workspace's own code reads the tape's clock; everybody else reads the real one."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from arkdev.tape.callers import Workspace
from arkdev.tape.clock import clock_read_through
from tests.unit.tape.attempts import module_at

SOURCE = """
import datetime as dt, time, uuid
from datetime import date, datetime, timedelta, timezone
from time import monotonic, time as now

READINGS = {
    "time": time.time, "bound": now, "time_ns": time.time_ns, "monotonic": monotonic,
    "perf_counter": time.perf_counter,
}
def read(name):
    return READINGS[name]()
def plain(): return time.time()
def bound(): return now()
def steady(): return monotonic()
def counter(): return time.perf_counter_ns()
def moment(): return datetime.now()
def other(): return dt.datetime.now()
def zoned(): return datetime.now(timezone(timedelta(hours=8)))
def named(): return datetime.now(tz=timezone.utc)
def utc(): return datetime.utcnow()
def day(): return date.today()
def today(): return datetime.today()
def text(): return time.strftime("%Y-%m-%d %H:%M:%S")
def parts(): return time.gmtime()
def spelled(): return time.asctime()
def raw(): return time.clock_gettime(time.CLOCK_REALTIME)
def worked(): return time.process_time() + time.thread_time_ns()
def of_given(): return time.gmtime(0).tm_year
def ident(): return uuid.uuid1()
"""
READERS = (
    "plain",
    "bound",
    "steady",
    "counter",
    "moment",
    "other",
    "zoned",
    "named",
    "utc",
    "day",
    "today",
    "text",
    "parts",
    "spelled",
    "raw",
    "ident",
)


class Kept:
    """A clock that keeps its readings, and gives them again."""

    def __init__(self) -> None:
        self.readings: list[tuple[str, Any]] = []
        self.again: list[tuple[str, Any]] = []

    def reading(self, name: str, read: Callable[[], Any]) -> Any:
        if self.again:
            known, value = self.again.pop(0)
            assert known == name
            return value
        value = read()
        self.readings.append((name, value))
        return value


@pytest.mark.filterwarnings("ignore:.*utcnow:DeprecationWarning")
def test_every_reading_is_kept_and_given_again(tmp_path: Path) -> None:
    clock = Kept()
    with clock_read_through(clock, Workspace(tmp_path)):
        code = module_at(tmp_path / "plugin.py", SOURCE)
        first = [code[name]() for name in READERS]
        assert len(clock.readings) == len(READERS)
        clock.again = list(clock.readings)
        time.sleep(0.002)
        assert [code[name]() for name in READERS] == first
        assert clock.again == []
        assert code["of_given"]() == 1970
    assert all(abs(code[name]() - first[0]) < 60 for name in ("plain", "bound"))


def test_libraries_read_the_real_clock(tmp_path: Path) -> None:
    clock = Kept()
    library = tmp_path / ".venv/lib/python3.11/site-packages/library.py"
    with clock_read_through(clock, Workspace(tmp_path / "ws")):
        outside = module_at(tmp_path / "elsewhere.py", SOURCE)
        [outside[name]() for name in ("plain", "moment", "day", "text", "ident")]
        assert datetime.datetime.now() and time.time()
    with clock_read_through(clock, Workspace(tmp_path)):
        module_at(library, SOURCE)["moment"]()
    assert clock.readings == []


def test_types_stay_what_they_are(tmp_path: Path) -> None:
    real = datetime.datetime

    class Event(BaseModel):
        at: real

    class Own(datetime.datetime):
        pass

    with clock_read_through(Kept(), Workspace(tmp_path)):
        code = module_at(tmp_path / "plugin.py", SOURCE)
        assert datetime.datetime is real
        assert type(code["moment"]()) is real
        assert type(Own.now()) is Own
        assert Event(at=code["zoned"]()).at.utcoffset() == datetime.timedelta(hours=8)
        assert type(code["today"]()) is real
        assert type(code["day"]()) is datetime.date
    assert isinstance(vars(real)["now"], type(vars(real)["fromtimestamp"]))
