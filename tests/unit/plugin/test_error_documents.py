"""An error crosses to another process and reads there as it did here."""

import json
from pathlib import Path

import pytest

from arkdev import errors
from arkdev.harness.attempts import outcome_of_exception
from arkdev.plugin.error_documents import error_document, error_of
from arkdev.plugin.exceptions import RolloutRetryException
from arkdev.plugin.source import RaisedElsewhere

HERE = Path(__file__).parent


def crossed(error, there=HERE):
    document = json.loads(json.dumps(error_document(error, root=HERE)))
    return document, error_of(document, root=there)


@pytest.mark.parametrize(
    "error",
    [
        errors.PluginError("m", hint="h", where=f"{HERE}/x.py:3"),
        errors.TranslationError("m", param="input[0]", hint="h"),
        errors.EndpointUnreachableError("m", is_timeout=True),
        errors.EndpointResponseError("m", status=429, body={"a": 1}, headers={"b": "c"}),
        errors.LongWaitError("m", status=503, is_transient=True),
        errors.ConfigurationError("m"),
    ],
)
def test_an_error_of_arkdevs_comes_back_with_all_that_it_knows(error):
    _, back = crossed(error)
    assert type(back) is type(error)
    assert (str(back), vars(back)) == (str(error), vars(error))


def raised(error):
    try:
        raise error from KeyError("cause")
    except type(error) as caught:
        return caught


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a: b"),
        RolloutRetryException("busy"),
        OSError(5, "x"),
        TypeError("object ChatCompletion can't be used in 'await' expression"),
    ],
)
def test_what_a_plugin_raised_ends_its_attempt_in_the_same_way(error):
    error = raised(error)
    _, back = crossed(error)
    assert isinstance(back, RaisedElsewhere)
    assert outcome_of_exception(back) == outcome_of_exception(error)


def test_places_are_relative_on_the_way_and_below_the_readers_folder_again():
    document, back = crossed(raised(ValueError("x")), there=Path("/other"))
    assert document["where"].startswith(f"{Path(__file__).name}:")
    assert str(HERE) not in document["traceback"]
    assert back.where == f"/other/{document['where']}"
    assert f'File "/other/{Path(__file__).name}", line' in back.traceback


def test_an_unknown_error_of_arkdevs_is_a_plugins():
    back = error_of({"type": "NoSuchError", "message": "m", "where": "", "arkdev": {}})
    assert type(back) is errors.PluginError
