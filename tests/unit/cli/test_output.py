import json
import subprocess
import sys

from arkdev.cli.output import print_error, print_json
from arkdev.errors import RunError


def test_error_says_what_where_and_what_to_do_on_stderr(capsys):
    error = RunError("no run [red]'x'", where="/a/b.py:3", hint="there are y, z")
    print_error(error)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: no run [red]'x'\nwhere: /a/b.py:3\nhint: there are y, z\n"


def test_error_without_place_or_hint_is_one_line(capsys):
    print_error(RunError("bad"))
    assert capsys.readouterr().err == "error: bad\n"


def test_json_document_carries_its_schema_version(capsys):
    print_json({"a": "中文"})
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "a": "中文"}


def test_importing_output_and_commands_does_not_import_rich():
    program = "import sys, arkdev.cli.output; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
