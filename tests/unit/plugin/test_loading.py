"""Finding plugins by module:function."""

import functools
import importlib
import sys
import textwrap
from unittest import mock

import pytest

from arkdev import rollout
from arkdev.errors import PluginLoadError, PluginSignatureError
from arkdev.plugin.decorators import plugin_of
from arkdev.plugin.loading import (
    _WorkspaceFinder,
    load_plugin,
    plugins_in,
    require_kind,
    use_workspace,
)
from tests.running import running

PLUGIN = """
from arkdev import rollout

@rollout
def f(context, proxy, sample):
    return {{"extra": {{"says": {says!r}}}}}
"""


@pytest.fixture(autouse=True)
def unchanged_imports():
    """What a test loaded is forgotten, so that tests do not depend on their order."""
    modules, finders = dict(sys.modules), list(sys.meta_path)
    sys.meta_path[:] = [finder for finder in finders if not isinstance(finder, _WorkspaceFinder)]
    for name in [name for name in modules if name.partition(".")[0] == "plugins"]:
        del sys.modules[name]
    yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]


def workspace(folder, **files):
    """Write files: plugins__a is plugins/a.py, plugins__init is plugins/__init__.py."""
    for name, text in files.items():
        path = name.replace("__init", "/__init__") if "__init" in name else name.replace("__", "/")
        file = folder / f"{path}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
    return folder


def says(text):
    return PLUGIN.format(says=text)


async def said(loaded):
    async with running() as run:
        return (await run.rollout(loaded)).record.extra["says"]


async def test_the_current_directory_does_not_matter(tmp_path, monkeypatch):
    elsewhere = workspace(tmp_path / "elsewhere", plugins__a=says("elsewhere"))
    here = workspace(tmp_path / "here", plugins__a=says("here"))
    monkeypatch.chdir(elsewhere)
    monkeypatch.syspath_prepend(elsewhere)
    assert await said(load_plugin("plugins.a:f", root=here)) == "here"


async def test_a_relative_root_is_the_workspace_for_good(tmp_path, monkeypatch):
    late = "\nimport plugins.b\nassert plugins.b\n"
    workspace(tmp_path / "w", plugins__a=says("relative") + late, plugins__b="")
    monkeypatch.chdir(tmp_path)
    from pathlib import Path

    loaded = load_plugin("plugins.a:f", root=Path("w"))
    monkeypatch.chdir("/")
    assert await said(loaded) == "relative"
    assert importlib.import_module("plugins.b").__file__ == str(tmp_path / "w/plugins/b.py")


async def test_a_plugin_called_like_the_standard_library_shadows_nothing(tmp_path):
    root = workspace(
        tmp_path, json="raise RuntimeError", plugins__json=says("own json"), random="BROKEN = 1"
    )
    loaded = load_plugin("plugins.json:f", root=root)
    sys.modules.pop("json.tool", None)
    assert importlib.import_module("json").loads("1") == 1
    assert importlib.import_module("json.tool")
    assert await said(loaded) == "own json"


async def test_an_installed_package_of_the_same_name_does_not_win(tmp_path, monkeypatch):
    installed = workspace(tmp_path / "site", plugins__init="", plugins__a=says("installed"))
    monkeypatch.syspath_prepend(installed)
    importlib.import_module("plugins.a")
    root = workspace(tmp_path / "w", plugins__a=says("workspace"))
    assert await said(load_plugin("plugins.a:f", root=root)) == "workspace"


def test_a_folder_of_data_does_not_hide_an_installed_package(tmp_path, monkeypatch):
    site = workspace(tmp_path / "site", datasets_of_tests__init="REAL = True")
    monkeypatch.syspath_prepend(site)
    root = workspace(tmp_path / "w", plugins__a="import datasets_of_tests as d\n" + says("x"))
    (root / "datasets_of_tests").mkdir()
    (root / "datasets_of_tests/train.jsonl").write_text("{}")
    loaded = load_plugin("plugins.a:f", root=root)
    assert sys.modules["plugins.a"].d.REAL
    assert loaded.plugin.name == "f"


async def test_two_workspaces_one_after_the_other_do_not_mix(tmp_path):
    helper = "from plugins.b import NAME\n"
    roots = [
        workspace(tmp_path / name, plugins__a=helper + says(name), plugins__b=f"NAME = {name!r}")
        for name in ("one", "two")
    ]
    loaded = [load_plugin("plugins.a:f", root=root) for root in roots]
    again = load_plugin("plugins.a:f", root=roots[0])
    assert [await said(each) for each in (*loaded, again)] == ["one", "two", "one"]
    assert [each.plugin.place for each in loaded] == [f"{r}/plugins/a.py:5" for r in roots]
    assert sys.modules["plugins.b"].NAME == "one"


def test_a_workspace_used_twice_is_imported_once(tmp_path):
    root = workspace(tmp_path, plugins__a=says("once"))
    first, second = (load_plugin("plugins.a:f", root=root) for _ in range(2))
    assert first.function is second.function


def test_the_environment_inside_a_workspace_is_not_its_code(tmp_path):
    packages = workspace(tmp_path / "w/.venv/lib", installed_thing="")
    sys.path.insert(0, str(packages))
    try:
        installed = importlib.import_module("installed_thing")
    finally:
        sys.path.remove(str(packages))
    use_workspace(tmp_path / "w")
    use_workspace(workspace(tmp_path / "other", plugins__a=""))
    assert sys.modules["installed_thing"] is installed


def test_only_one_workspace_is_served(tmp_path):
    for name in ("one", "two", "two"):
        use_workspace(workspace(tmp_path / name, plugins__a=""))
    finders = [finder for finder in sys.meta_path if isinstance(finder, _WorkspaceFinder)]
    assert [finder.root for finder in finders] == [str(tmp_path / "two")]


@pytest.mark.parametrize("init", [True, False])
async def test_relative_imports_work(tmp_path, init):
    files = {"plugins__init": ""} if init else {}
    root = workspace(
        tmp_path,
        plugins__a="from .b import NAME\nfrom . import b\nfrom .deep.c import C\n" + says("near"),
        plugins__b="NAME = 1",
        plugins__deep__c="from ..b import NAME as C",
        **files,
    )
    assert await said(load_plugin("plugins.a:f", root=root)) == "near"


BROKEN = {
    "an error": ("def boom():\n    raise ValueError('坏')\nboom()\n", ":2", "ValueError: 坏"),
    "a syntax error": ("x = 1\ndef f(:\n", ":2", "SyntaxError"),
    "a missing package": ("\n\nimport no_such_package\n", ":3", "No module named 'no_such"),
    "an exit": ("import sys\nsys.exit(3)\n", ":2", "SystemExit: 3"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_import_error_shows_the_users_line(tmp_path, name):
    text, line, message = BROKEN[name]
    root = workspace(tmp_path, plugins__a=text)
    with pytest.raises(PluginLoadError, match=r"importing plugins\.a failed") as failed:
        load_plugin("plugins.a:f", root=root)
    assert failed.value.where == f"{root}/plugins/a.py{line}"
    assert message in failed.value.message
    assert failed.value.__cause__ is not None
    if name == "a missing package":
        assert failed.value.hint == "install no_such_package and add it to requirements.txt"


def test_a_missing_package_that_is_in_requirements_is_installed_from_there(tmp_path):
    root = workspace(tmp_path, plugins__a="import no_such_package.part")
    (root / "requirements.txt").write_text(
        "# 依赖\nNo-Such-Package==1.2  # why\n", encoding="utf-8"
    )
    with pytest.raises(PluginLoadError) as failed:
        load_plugin("plugins.a:f", root=root)
    expected = "run pip install -r requirements.txt, which has no_such_package"
    assert failed.value.hint == expected


def test_wrong_parameters_are_told_in_the_decorators_own_words(tmp_path):
    text = "from arkdev import rollout\n@rollout\ndef f(context): ...\n"
    root = workspace(tmp_path, plugins__a=text)
    with pytest.raises(PluginSignatureError, match=r"^\S+a\.py:2: f takes \(context\)") as failed:
        load_plugin("plugins.a:f", root=root)
    assert failed.value.hint == "def f(context, proxy, sample): ..."


def test_an_error_in_an_imported_module_shows_that_modules_line(tmp_path):
    root = workspace(tmp_path, plugins__a="import plugins.b", plugins__b="\n1 / 0")
    with pytest.raises(PluginLoadError, match="ZeroDivisionError") as failed:
        load_plugin("plugins.a:f", root=root)
    assert failed.value.where == f"{root}/plugins/b.py:2"


def test_a_folder_whose_name_begins_like_the_package_is_the_users(tmp_path, monkeypatch):
    from arkdev.plugin import source

    monkeypatch.setattr(source, "_PACKAGE", f"{tmp_path}/arkdev/")
    root = workspace(tmp_path / "arkdev-workspace", plugins__a="1 / 0")
    with pytest.raises(PluginLoadError) as failed:
        load_plugin("plugins.a:f", root=root)
    assert failed.value.where == f"{root}/plugins/a.py:1"


def test_what_is_not_found_lists_what_was_found(tmp_path):
    grader = "from arkdev import *\n@single_grader\ndef g(context, sample, trajectory): ...\n"
    root = workspace(tmp_path, plugins__a=grader + says("x"), job="", plugins__none="X = 1")
    with pytest.raises(PluginLoadError, match=r"plugins\.a has no 'nope'") as failed:
        load_plugin("plugins.a:nope", root=root)
    assert failed.value.where == f"{root}/plugins/a.py"
    assert failed.value.hint == "it has plugins.a:g (single_grader), plugins.a:f (single_rollout)"
    with pytest.raises(PluginLoadError) as failed:
        load_plugin("plugins.none:nope", root=root)
    assert failed.value.hint == "the module has no decorated function"
    with pytest.raises(PluginLoadError, match=r"no module plugins\.b in") as failed:
        load_plugin("plugins.b:f", root=root)
    assert f"expected {root}/plugins/b.py" in failed.value.hint
    assert "modules found: job, plugins.a, plugins.none" in failed.value.hint


@pytest.mark.parametrize("reference", ["plugins.a", "plugins.a:", ":f", "plugins/a.py"])
def test_a_malformed_reference_shows_the_form(tmp_path, reference):
    with pytest.raises(PluginLoadError, match="not of the form module:function") as failed:
        load_plugin(reference, root=tmp_path)
    assert "plugins.weather_rollout:demo_rollout" in failed.value.hint


def test_a_module_that_holds_a_mock_can_be_listed(tmp_path):
    root = workspace(tmp_path, plugins__a="from unittest.mock import call\n" + says("x"))
    with pytest.raises(PluginLoadError) as failed:
        load_plugin("plugins.a:nope", root=root)
    assert failed.value.hint == "it has plugins.a:f (single_rollout)"
    assert plugin_of(mock.call) is None


def test_the_kind_is_checked(tmp_path):
    root = workspace(tmp_path, plugins__a=says("x"))
    loaded = load_plugin("plugins.a:f", root=root)
    assert require_kind(loaded, is_rollout=True) is loaded
    with pytest.raises(PluginLoadError, match="is a single_rollout, not a grader") as failed:
        require_kind(loaded, is_rollout=False)
    assert failed.value.where == f"{root}/plugins/a.py:4"
    (found,) = plugins_in(sys.modules["plugins.a"])
    assert found.reference == "plugins.a:f"


class CallableRollout:
    """An object that is a rollout."""

    unit: str = "celsius"

    def __call__(self, context, proxy, sample: dict):
        return {"extra": {"says": type(sample).__name__}}


class AsyncCallableRollout:
    async def __call__(self, context, proxy, sample: dict):
        return {"extra": {"says": type(sample).__name__}}


class WithMethod:
    def run(self, context, proxy, sample: dict):
        return {"extra": {"says": type(sample).__name__}}

    @staticmethod
    @rollout
    def static(context, proxy, sample: dict):
        return {"extra": {"says": type(sample).__name__}}


def with_unit(unit, context, proxy, sample: dict):
    return {"extra": {"says": type(sample).__name__}}


def wrapped_outside(function):
    @functools.wraps(function)
    async def wrapper(*args, **kwargs):
        return await function(*args, **kwargs)

    return wrapper


class Later:
    """A class-based decorator that keeps the function as `func`."""

    def __init__(self, func):
        self.func = func

    def __call__(self, *args):
        return self.func(*args)


FORMS = {
    "a wrapped plugin": lambda: wrapped_outside(rollout(functools.partial(with_unit, "c"))),
    "a partial of a plugin": lambda: functools.partial(rollout(WithMethod().run)),
    "a decorated partial": lambda: rollout(functools.partial(with_unit, "c")),
    "a callable object": lambda: rollout(CallableRollout()),
    "an async callable object": lambda: rollout(AsyncCallableRollout()),
    "a bound method": lambda: rollout(WithMethod().run),
    "a static method": lambda: WithMethod.static,
    "under a decorator class": lambda: Later(rollout(WithMethod().run)),
}


@pytest.mark.parametrize("form", FORMS)
async def test_every_form_of_a_plugin_is_loaded_and_runs(form):
    loaded = load_plugin(FORMS[form](), root=None)
    assert loaded.plugin.kind == "single_rollout"
    assert loaded.plugin.place.startswith(__file__)
    assert await said(loaded) == "dict"


def test_a_partial_that_fills_a_parameter_must_still_fit():
    with pytest.raises(PluginSignatureError, match="called with"):
        rollout(functools.partial(with_unit))


async def test_an_annotation_that_cannot_be_resolved_hides_no_other():
    scope = {"rollout": rollout}
    exec(
        "from __future__ import annotations\n"
        "@rollout\n"
        "def f(context: OnlyForTypeCheckers, proxy, sample: dict) -> Unknown:\n"
        "    return {'extra': {'says': type(sample).__name__}}\n",
        scope,
    )
    assert await said(load_plugin(scope["f"], root=None)) == "dict"
