from dataclasses import dataclass
from pathlib import Path

import pytest

from arkdev.faas_emulator.packages.undeclared import undeclared_hint, undeclared_variables
from tests.unit.faas_emulator.engines.container_engines import function


@dataclass
class Package:
    files: list[tuple[str, Path]]


@pytest.fixture
def package(tmp_path):
    def of(**sources):
        made = []
        for name, source in sources.items():
            path = tmp_path / f"{name}.py"
            path.write_text(source, encoding="utf-8")
            made.append((f"plugins/{name}.py", path))
        return Package(made)

    return of


SET = {"SEARCH_API_KEY": "a-secret-value", "OTHER": "x", "HOME": "/root"}


@pytest.mark.parametrize(
    "source",
    [
        "import os\n\nx = os.environ['SEARCH_API_KEY']\n",
        "import os\n\nx = os.environ.get('SEARCH_API_KEY', '')\n",
        "import os\n\nx = os.getenv('SEARCH_API_KEY')\n",
        "import os as system\n\nx = system.getenv('SEARCH_API_KEY')\n",
        "from os import environ\n\nx = environ['SEARCH_API_KEY']\n",
        "from os import environ as env\n\nx = env.get('SEARCH_API_KEY')\n",
        "from os import getenv as get\n\nx = get('SEARCH_API_KEY')\n",
        "import os\n\nx = 'SEARCH_API_KEY' in os.environ\n",
        "import os\nKEY = 'SEARCH_API_KEY'\nx = os.environ[KEY]\n",
    ],
)
def test_every_way_to_read_a_variable_is_seen_with_its_place(package, source):
    (found,) = undeclared_variables(package(search=source), [function()], environment=SET)
    assert (found.name, found.place) == ("SEARCH_API_KEY", "plugins/search.py:3")


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['SEARCH_API_KEY'] = 'x'\n",
        "import os\nx = os.environ['NOT_SET_HERE']\n",
        "import os\nx = os.environ['HOME']\n",
        "x = {'SEARCH_API_KEY': 1}['SEARCH_API_KEY']\n",
        "from settings import environ\nx = environ['SEARCH_API_KEY']\n",
        "import os\nname = input()\nx = os.environ[name]\n",
        "this is no Python",
    ],
)
def test_what_reads_no_variable_of_this_machine_is_not_named(package, source):
    assert undeclared_variables(package(search=source), [function()], environment=SET) == ()


def test_only_functions_that_do_not_declare_it_are_named(package):
    source = "import os\nx = os.environ['SEARCH_API_KEY']\n"
    declared = function("search", envs={"SEARCH_API_KEY": "k"})
    lacking = function("judge")
    (found,) = undeclared_variables(package(a=source), [declared, lacking], environment=SET)
    assert found.functions == ("judge",)
    assert undeclared_variables(package(a=source), [declared], environment=SET) == ()


def test_the_hint_names_the_variable_and_its_place_and_never_a_value(package):
    source = "import os\nx = os.environ['SEARCH_API_KEY']\n"
    hint = undeclared_hint(undeclared_variables(package(a=source), [function()], environment=SET))
    assert "SEARCH_API_KEY (read at plugins/a.py:2) is set on this machine" in hint
    assert "not declared for search" in hint
    assert "`envs`" in hint
    assert "a-secret-value" not in hint
    assert undeclared_hint(()) == ""


def test_this_process_environment_is_the_one_that_counts(package, monkeypatch):
    monkeypatch.setenv("SEARCH_API_KEY", "k")
    source = "import os\nx = os.environ['SEARCH_API_KEY']\n"
    assert undeclared_variables(package(a=source), [function()])
