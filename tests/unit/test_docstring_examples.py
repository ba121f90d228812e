import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "arkdev.cli.conversation",
        "arkdev.cli.terminal",
        "arkdev.harness.statistics",
        "arkdev.runs.masking",
    ],
)
def test_examples_in_docstrings_are_true(module):
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
