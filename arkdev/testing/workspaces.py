"""The workspace of a test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkdev.errors import WorkspaceError
from arkdev.job.workspace import find_workspace
from arkdev.plugin import ark_sdk
from arkdev.plugin.loading import load_plugin
from arkdev.testing.tracebacks import with_short_tracebacks


@dataclass(frozen=True)
class PluginWorkspace:
    """A workspace whose plugins can be called. `ark_sdk` names are served."""

    root: Path

    @classmethod
    def around(cls, folder: Path) -> PluginWorkspace:
        """Return the workspace that `folder` lies in; raises `WorkspaceError` if there is none."""
        workspace = find_workspace(folder)
        if workspace.is_bare:
            raise WorkspaceError(
                "the test is in no workspace",
                where=str(folder),
                hint="a workspace has an arkworkspace.toml, a job.yaml or job.py, or a folder "
                "plugins",
            )
        ark_sdk.install()
        return cls(workspace.root)

    @with_short_tracebacks
    def load(self, reference: str) -> Any:
        """Return the decorated function that ``module:function`` names.

        It is always awaitable. Raises `PluginLoadError`.
        """
        return load_plugin(reference, root=self.root).function
