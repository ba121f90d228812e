"""The engine ``vllm`` against a real server; run by ``bash .ci/engines.sh``."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from arkdev.backends.local.vllm.engine import VllmEngine, start_vllm
from arkdev.backends.local.vllm.settings import SOCKET, VllmSettings
from arkdev.errors import ConfigurationError, PolicyEngineError
from tests.bigram_model import (
    LORA_RANK,
    VOCABULARY_SIZE,
    Table,
    adapted_table,
    random_table,
    write_adapter,
    write_bigram_model,
)
from tests.engine_conformance import CHECKS, Subject
from tests.engines.servers import START_LIMIT_S, engine_python

pytestmark = pytest.mark.engines
TABLE = random_table(0)
BIAS = [(-1.0) ** token * 0.1 for token in range(VOCABULARY_SIZE)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmEngine]:
    folder = tmp_path_factory.mktemp("vllm")
    settings = VllmSettings(write_bigram_model(folder / "model", TABLE), lora_rank=LORA_RANK)
    told: list[str] = []
    engine = asyncio.run(
        start_vllm(
            settings,
            log=folder / "vllm.log",
            tell=told.append,
            start_limit_s=START_LIMIT_S,
            python=engine_python("vllm"),
        )
    )
    assert told and told[0].startswith("vLLM starts, ")
    yield engine
    asyncio.run(engine.close())
    asyncio.run(engine.close())


@pytest.fixture(scope="module")
def subject(engine: VllmEngine, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folders = tmp_path_factory.mktemp("tables")

    def source_of(table: Table) -> Path:
        return write_bigram_model(folders / "model", table)

    return Subject(engine, TABLE, source_of)


@pytest.mark.parametrize("name", CHECKS)
async def test_conforms(name: str, subject: Subject) -> None:
    await CHECKS[name](subject)


async def test_an_adapter_is_loaded_over_the_model_and_leaves_it(
    subject: Subject, tmp_path: Path
) -> None:
    scores_are_exact = CHECKS["scores_are_exact"]
    for bias in (BIAS, BIAS[::-1]):
        subject.version += 1
        adapter = write_adapter(tmp_path / f"{subject.version}", bias=bias)
        await subject.engine.update_weights(adapter, version=subject.version)
        subject.table = adapted_table(TABLE, bias=bias)
        await scores_are_exact(subject)
    await subject.change_to(TABLE)
    await scores_are_exact(subject)


async def test_a_folder_without_weights_is_refused(subject: Subject, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no weights"):
        await subject.engine.update_weights(tmp_path, version=1)


async def test_a_connection_that_was_idle_for_longer_than_vllms_own_limit_still_answers(
    engine: VllmEngine,
) -> None:
    """After 5 s vLLM would close it, into what is just being sent."""
    reader, writer = await asyncio.open_unix_connection(engine.weights_folder.parent / SOCKET)
    for pause_s in (0, 7):
        await asyncio.sleep(pause_s)
        writer.write(b"GET /version HTTP/1.1\r\nHost: vllm\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        while (await reader.readline()).strip():
            pass
        await reader.read(1000)
    writer.close()


async def test_its_death_is_told_with_what_it_printed_last(engine: VllmEngine) -> None:
    """The last test here: it takes the server from the others."""
    group = engine._process._process.pid
    (worker,) = _processes(group, named="VLLM::Worker")
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(PolicyEngineError) as caught:
        while True:
            await engine.score([1, 2, 3])
    assert "vLLM ended" in str(caught.value)
    assert "it printed last" in caught.value.hint
    _wait_for_end_of(group)


def _wait_for_end_of(group: int) -> None:
    deadline = time.monotonic() + 20
    while _processes(group):
        assert time.monotonic() < deadline, _processes(group)
        time.sleep(0.1)


def _processes(group: int, *, named: str = "") -> list[int]:
    """Ids of the processes of a group that run."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,pgid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 3) for line in listed.splitlines()]
    return [
        int(pid)
        for pid, of_group, status, args in rows
        if int(of_group) == group and not status.startswith("Z") and args.startswith(named)
    ]
