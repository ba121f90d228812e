"""The templates' own modules and data sets: what the model is made from and measured on.

Nothing of a template is copied here, so a change of a template shows in the next model.
"""

from __future__ import annotations

import importlib
import json
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from arkdev.plugin import ark_sdk

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
TEMPLATE_PACKAGES = ("plugins", "data")
VALIDATION = {
    "rl_demo": "mcj_rollout_validation_dataset.jsonl",
    "minimal": "validation.jsonl",
    "rl_search_mcp_demo": "search_dataset_dev_100.jsonl",
}


@cache
def template_module(workspace: str, name: str) -> ModuleType:
    """Import `name` of a template. Every template has packages of the same names: none stays."""
    ark_sdk.install()
    before = _take_packages()
    # not by the search path: a package of that name with an __init__.py would win, wherever it is
    for package in TEMPLATE_PACKAGES:
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [str(TEMPLATES / workspace / package)]
    try:
        return importlib.import_module(name)
    finally:
        _take_packages()
        sys.modules.update(before)


def _take_packages() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.split(".")[0] in TEMPLATE_PACKAGES]
    return {name: sys.modules.pop(name) for name in names}


@cache
def validation_samples(workspace: str) -> tuple[dict[str, Any], ...]:
    """The lines of a template's validation file: `messages` and `extra.answer`."""
    path = TEMPLATES / workspace / "data" / VALIDATION[workspace]
    return tuple(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


@cache
def held_out_prompts() -> frozenset[str]:
    """Every question of the three validation files; none may be trained on."""
    return frozenset(
        sample["messages"][-1]["content"]
        for workspace in VALIDATION
        for sample in validation_samples(workspace)
    )
