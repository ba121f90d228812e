"""Test instances of the documents: one request to a plugin as a cloud function (SURFACE FT, X-05).

What an instance is, and where it runs, is not known here: `arkdev run FILE` says so for the time of
a script (`testing_with`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from arkdev.errors import UsageError
from arkdev.plugin.source import callers_place


class PluginTestInstance(Protocol):
    """The environment of one plugin: its code as it was deployed, and its instances."""

    def request(self, request: Mapping[str, Any], sync: bool = False) -> Any:
        """Call the plugin with a documented request; return what it returned, or raise its error.

        With `sync` the code is updated first; else that goes on which was deployed last (FT-06).
        """
        ...

    def sync(self) -> None:
        """Update the code."""
        ...

    def stop(self) -> None:
        """End the instances and forget the code: the next request deploys it anew. Idempotent."""
        ...


class TestInstances(Protocol):
    """Where test instances come from."""

    def of(self, function: Any) -> PluginTestInstance:
        """Return the instance of a decorated function; its environment is made when there is none.

        Raises `ConfigurationError`.
        """
        ...


_current: ContextVar[TestInstances | None] = ContextVar("arkdev_test_instances", default=None)


@contextmanager
def testing_with(instances: TestInstances) -> Iterator[None]:
    """Let test instances come from there inside of the block."""
    token = _current.set(instances)
    try:
        yield
    finally:
        _current.reset(token)


def get_or_create_pipeline_plugin_test_instance(plugin_fn: Any) -> PluginTestInstance:
    """Return the test instance of a plugin (FT-02).

    Raises `UsageError` in a script that arkdev does not run, and `ConfigurationError` when the
    plugin cannot be deployed.
    """
    instances = _current.get()
    if instances is None:
        raise UsageError(
            "test instances are for a script that arkdev runs: `arkdev run FILE`",
            where=callers_place(),
            hint="one request without a script: "
            "`arkdev test pipeline_plugin --fn MODULE:FUNCTION --request JSON`",
        )
    return instances.of(plugin_fn)
