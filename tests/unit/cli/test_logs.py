"""`arkdev show RUN --logs`: order and columns."""

import io

import pytest
from rich.console import Console

from arkdev.cli import logs
from arkdev.runs.reader import RunReader
from arkdev.runs.records import PluginLogRecord
from arkdev.runs.writer import RunWriter


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """Write lines into a run; return what is shown of them from a level up."""

    def show(*lines, level=""):
        run = RunWriter.create(tmp_path, kind="test", settings={}, hashes={}, versions={})
        for second, name, text in lines:
            at = f"2026-01-01T00:00:0{second}.000000Z"
            run.log(PluginLogRecord(at, name, ("7.1",), 0, None, None, "", text))
        run.finish("finished", {})
        stream = io.StringIO()
        monkeypatch.setattr(logs, "console", lambda: Console(file=stream, width=200))
        logs.show_logs(RunReader(run.folder), level=level or "DEBUG", as_json=False)
        return [line.rstrip() for line in stream.getvalue().splitlines()]

    return show


def test_lines_are_in_the_order_of_their_time(shown):
    lines = shown((3, "INFO", "third"), (1, "INFO", "first"), (2, "PRINT", "second"))
    assert [line.split()[-1] for line in lines] == ["first", "second", "third"]


def test_a_level_without_a_name_keeps_to_its_column_and_counts_as_its_number(shown):
    lines = [(1, "Level 25", "a"), (2, "Level 1000", "b"), (3, "VERBOSELY", "c"), (4, "INFO", "d")]
    assert {line.index(" 7.1 ") for line in shown(*lines)} == {len("00:00:01.000 ") + 8}
    assert [line.split()[1] for line in shown(*lines, level="WARNING")] == ["1000"]
