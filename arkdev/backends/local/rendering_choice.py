"""Which rendering a model's folder gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from arkdev.backends.local.probe_dialogues import PROBES, Dialogue
from arkdev.backends.local.rendering import Rendering
from arkdev.backends.local.template_rendering import TemplateRendering
from arkdev.errors import ConfigurationError

_FAMILIES = {
    "deepseek_v3": ("deepseek-v3", "deepseek-r1", "kimi-k2"),
    "glm4_moe": ("glm-4.5", "glm-5"),
    "glm4_moe_lite": ("glm-5",),
    "glm_moe_dsa": ("glm-5", "glm-5.1", "glm-5.3"),
    "gpt_oss": ("gpt-oss",),
    "hy_v3": ("hy3",),
    "laguna": ("laguna-xs.2", "laguna-m.1", "laguna-xs-2.1", "laguna-s-2.1"),
    "llama": ("llama-3",),
    "minimax_m2": ("minimax-m2",),
    "nemotron_h": ("nemotron-3", "nemotron-3-ultra", "nemotron-3.5"),
    "qwen3": ("qwen3", "prime-qwen3"),
    "qwen3_moe": ("qwen3",),
    "qwen3_5": ("qwen3.5", "qwen3.6", "qwen3.8"),
    "qwen3_5_moe": ("qwen3.5", "qwen3.6", "qwen3.8"),
}
"""The ``model_type`` of config.json, and the renderers (of renderers 0.1) that may be its own.
Models of one type differ in their templates: the renderer must write what the folder's does."""


def chosen_rendering(folder: Path) -> Rendering:
    """Return the renderer that writes what the folder's chat template writes, or that template."""
    tokenizer = _tokenizer(folder)
    ends = _end_token_ids(folder, tokenizer)
    template = TemplateRendering(tokenizer, end_token_ids=ends)
    names = _FAMILIES.get(str(_document(folder / "config.json").get("model_type")), ())
    if names:
        known: Any = import_module("arkdev.backends.local.known_rendering")
        for name in names:
            try:
                rendering: Rendering = known.KnownRendering(name, tokenizer, template=template)
            except known.CANNOT_RENDER:
                continue  # it misses tokens of that family
            if _writes_the_same(rendering, template):
                return rendering
    return template


def _tokenizer(folder: Path) -> Any:
    if not (folder / "tokenizer_config.json").is_file():
        raise ConfigurationError(
            "there is no tokenizer_config.json",
            where=str(folder),
            hint="a model in Hugging Face layout has one beside its config.json",
        )
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # of two packages, about whatever the files hold
        raise ConfigurationError(
            f"the model's tokenizer cannot be read: {error}", where=str(folder)
        ) from error


def _end_token_ids(folder: Path, tokenizer: Any) -> frozenset[int]:
    """What ends an answer by the folder's own account (field case 1.5): all of it counts."""
    named = _document(folder / "generation_config.json").get("eos_token_id")
    ids = named if isinstance(named, list) else [named]
    return frozenset(token for token in (*ids, tokenizer.eos_token_id) if token is not None)


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigurationError(f"not JSON: {error}", where=str(path)) from error
    return document if isinstance(document, dict) else {}


def _writes_the_same(rendering: Rendering, template: TemplateRendering) -> bool:
    """Whether both give the same prompts for all dialogues that the template can write."""
    for dialogue, length in _prompts():
        messages, tools = dialogue.messages[:length], dialogue.tools
        try:
            wanted = template.render(messages, tools=tools)
        except ConfigurationError:
            continue
        try:
            if rendering.render(messages, tools=tools) != wanted:
                return False
        except ConfigurationError:
            return False
    return True


def _prompts() -> Iterator[tuple[Dialogue, int]]:
    for dialogue in PROBES:
        for index in dialogue.answers:
            yield dialogue, index
