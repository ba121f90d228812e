"""What `pip install 'arkdev[local]'` brings is all that training on this machine imports."""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_ROOT = Path(__file__).parents[2]
_DRIVER = """
import importlib, json, pkgutil, sys
from importlib.machinery import PathFinder
from pathlib import Path

hidden = set(json.loads(sys.stdin.read()))


class Closed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        is_hidden = name.partition(".")[0] in hidden
        return None if is_hidden else PathFinder.find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Closed
import arkdev.backends.local as local

for module in pkgutil.walk_packages(local.__path__, local.__name__ + "."):
    importlib.import_module(module.name)

from arkdev.backends.local.rendering import open_rendering

rendering = open_rendering(Path(local.__path__[0]) / "embedded" / "tiny")
assert rendering.render([{"role": "user", "content": "hello"}], tools=None, thinking=None)
"""


def _closure(requirements):
    """Return the names of the distributions that pip installs for `requirements`."""
    seen = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        for extra in {"", *requirement.extras}:
            key = (canonicalize_name(requirement.name), extra)
            if key in seen:
                continue
            seen.add(key)
            try:
                texts = requires(requirement.name) or []
            except PackageNotFoundError:  # not on this platform
                continue
            following = [Requirement(text) for text in texts]
            waiting += [
                each
                for each in following
                if not each.marker or each.marker.evaluate({"extra": extra})
            ]
    return {name for name, _ in seen}


def test_the_extra_local_names_all_that_training_here_imports():
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = _closure(project["dependencies"] + project["optional-dependencies"]["local"])
    own = {"arkdev"}
    hidden = [
        module
        for module, distributions in packages_distributions().items()
        if not {canonicalize_name(name) for name in distributions} & (installed | own)
    ]
    assert "pytest" in hidden
    ended = subprocess.run(
        [sys.executable, "-c", _DRIVER],
        input=json.dumps(hidden),
        capture_output=True,
        text=True,
        cwd=_ROOT,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
