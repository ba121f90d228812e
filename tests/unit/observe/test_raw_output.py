"""What is written to descriptor 2 past Python, where it is no terminal."""

import os
import subprocess
import sys
import tempfile

from arkdev.observe.plugin_output import plugin_output_to

PROGRAM = """
import os, sys
from arkdev.observe.plugin_output import plugin_output_to
{first}
with plugin_output_to(lambda line: None, mask=lambda text: text.replace("sk-0123456789", "***")):
    {then}
os.write(2, b"after\\n")
"""


def written(then, *, first=""):
    """What a program writes to its stderr, a pipe."""
    program = PROGRAM.format(first=first, then=then)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    return done.stderr.decode("utf-8", "surrogateescape")


def test_it_goes_on_with_its_secrets_masked():
    assert written('os.write(2, b"key sk-0123456789 \\xff\\nhalf")') == (
        "key *** \udcff\nhalf\nafter\n"
    )


def test_a_handler_that_was_made_at_import_shows_no_secret():
    first = "import logging; logging.getLogger('p').propagate = False\n"
    first += "logging.getLogger('p').addHandler(logging.StreamHandler())"
    assert written("logging.getLogger('p').error('sk-0123456789')", first=first) == "***\nafter\n"


def test_programs_that_a_plugin_starts_are_masked_too():
    then = "os.system('echo sk-0123456789 >&2')"
    assert written(then) == "***\nafter\n"


def test_descriptor_1_stays_apart_from_descriptor_2():
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with plugin_output_to(lambda line: None):
                os.write(1, b"result\n")
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        assert file.read() == b"result\n"
