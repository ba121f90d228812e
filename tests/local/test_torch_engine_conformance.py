"""The engine ``torch`` does what every engine must do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import torch
from transformers import AutoModelForCausalLM

from arkdev.backends.local.sampler.engine import TorchEngine
from tests.bigram_model import (
    ARCHITECTURES,
    CONTEXT_LENGTH,
    Table,
    random_table,
    write_bigram_model,
)
from tests.engine_conformance import CHECKS, Subject


@pytest.fixture(scope="module", params=[*ARCHITECTURES])
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Subject]:
    folder, table = tmp_path_factory.mktemp("tables"), random_table(0)

    def model_of(table: Table) -> torch.nn.Module:
        is_tied = request.param == "qwen3"
        path = write_bigram_model(folder, table, architecture=request.param, is_tied=is_tied)
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)

    engine = TorchEngine(model_of(table), max_context_tokens=CONTEXT_LENGTH)
    yield Subject(engine, table, model_of)
    asyncio.run(engine.close())


@pytest.mark.parametrize("name", CHECKS)
async def test_conforms(name: str, subject: Subject) -> None:
    await CHECKS[name](subject)
