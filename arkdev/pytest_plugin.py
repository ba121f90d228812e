"""The pytest plugin (entry point ``pytest11``): fixtures for tests of a workspace's plugins.

pytest imports this module in every project of the environment, so it imports nothing else of
arkdev; a fixture loads what it needs when a test asks for it. docs/pytest.md describes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from arkdev.testing.endpoints import EndpointFactory
    from arkdev.testing.proxies import ProxyFactory
    from arkdev.testing.runs import RunFactory
    from arkdev.testing.tapes import TapeFactory
    from arkdev.testing.workspaces import PluginWorkspace

_WORKSPACE_FILE = "arkworkspace.toml"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Serve `ark_sdk` names to conftests, tests and plugins where the rootdir is a workspace."""
    if (early_config.rootpath / _WORKSPACE_FILE).is_file():
        import_module("arkdev.plugin.ark_sdk").install()


@pytest.fixture
def arkdev_workspace(request: pytest.FixtureRequest) -> PluginWorkspace:
    """The workspace that the test's file lies in: `root`, and `load("module:function")`."""
    found: Any = import_module("arkdev.testing.workspaces")
    errors: Any = import_module("arkdev.errors")
    try:
        workspace: PluginWorkspace = found.PluginWorkspace.around(request.path.parent)
    except errors.ArkdevError as error:
        pytest.fail(f"{error}\nhint: {error.hint}", pytrace=False)
    return workspace


@pytest.fixture
def arkdev_endpoint() -> Iterator[EndpointFactory]:
    """Serve the scripted model on this machine: `arkdev_endpoint(skill=1.0).url`."""
    with ExitStack() as stack:
        endpoints: Any = import_module("arkdev.testing.endpoints")
        yield endpoints.EndpointFactory(stack)


@pytest.fixture
def arkdev_proxy() -> Iterator[ProxyFactory]:
    """Make the proxy that a rollout is given: `arkdev_proxy(sample, skill=1.0)`."""
    with ExitStack() as stack:
        proxies: Any = import_module("arkdev.testing.proxies")
        yield proxies.ProxyFactory(stack)


@pytest.fixture
def arkdev_run(
    arkdev_workspace: PluginWorkspace, tmp_path_factory: pytest.TempPathFactory
) -> RunFactory:
    """Run `arkdev test plugin` in the workspace: `arkdev_run(limit=16, skill=1.0)`."""
    runs: Any = import_module("arkdev.testing.runs")
    factory: RunFactory = runs.RunFactory(
        arkdev_workspace.root, out=lambda: tmp_path_factory.mktemp("arkdev") / "run"
    )
    return factory


@pytest.fixture
def arkdev_tape(
    arkdev_workspace: PluginWorkspace, arkdev_run: RunFactory, request: pytest.FixtureRequest
) -> TapeFactory:
    """Run the plugins' code on a tape, recorded the first time: `arkdev_tape("tape.jsonl")`."""
    tapes: Any = import_module("arkdev.testing.tapes")
    factory: TapeFactory = tapes.TapeFactory(
        arkdev_workspace.root, folder=request.path.parent, run=arkdev_run
    )
    return factory
