"""The parts of `faas.py` that need a container engine: starts and builds."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from arkdev.faas_emulator.choices import InstanceKind
from arkdev.faas_emulator.engines.engine import open_engine
from arkdev.faas_emulator.images.image import build_image
from arkdev.faas_emulator.worker import wire
from arkdev.flows.faas_instances import instance_source
from benchmarks.faas_workspace import WORK, planned, wait_until_it_answers, write_workspace

LABEL = "arkdev.benchmark"


async def measure_cold(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A start by the launcher, and a bare `docker run` of the same image, in turns."""
    engine = await open_engine()
    await engine.close()
    write_workspace(root)
    plan = planned(root, InstanceKind.CONTAINER)
    said: list[str] = []
    ours, bare = [], []
    async with instance_source(plan, say=said.append) as source:
        assert source is not None
        (function,) = plan.functions
        launcher = (await source.launcher_for([function.spec])).launcher
        try:
            for _ in range(options.starts):
                started = time.perf_counter()
                instance = await launcher.start(function.spec, on_log=lambda _: None)
                ours.append(time.perf_counter() - started)
                image = await asyncio.to_thread(_image_of, instance.id)
                await instance.stop()
                bare.append(await asyncio.to_thread(_docker_run, image))
        finally:
            await launcher.close()
    ratio = statistics.median(ours) / statistics.median(bare)
    return {
        "start_s": statistics.median(ours),
        "docker_run_s": statistics.median(bare),
        "ratio": ratio,
        "aim": "at most 1.3 times docker run",
        "is_met": ratio <= 1.3,
    }


def _docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _image_of(container: str) -> str:
    return _docker("inspect", "--format", "{{.Config.Image}}", container)


def _docker_run(image: str) -> float:
    """Return how long a bare container of the image takes until it answers."""
    started = time.perf_counter()
    variables = {wire.PORT_VARIABLE: "8000", wire.FUNCTION_VARIABLE: "plugins.bench:grade"}
    given = [part for name, value in variables.items() for part in ("-e", f"{name}={value}")]
    container = _docker("run", "-d", "--label", LABEL, *given, image)
    try:
        address = _docker("inspect", "--format", "{{.NetworkSettings.IPAddress}}", container)
        wait_until_it_answers(f"http://{address}:8000/", within_s=60)
        return time.perf_counter() - started
    finally:
        _docker("rm", "-f", container)


async def measure_rebuild(root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The image after an edit of the plugin, and where nothing has changed."""
    engine = await open_engine()
    write_workspace(root)
    took: dict[str, list[float]] = {"first": [], "edit": [], "same": []}

    async def build(what: str) -> None:
        plan = planned(root, InstanceKind.CONTAINER)
        started = time.perf_counter()
        await build_image(
            plan.package, plan.requirements, engine=engine.images, on_output=lambda _: None
        )
        took[what].append(time.perf_counter() - started)

    try:
        await build("first")
        for number in range(options.starts):
            file = root / "plugins" / "work.py"
            file.write_text(f"{WORK}\n# edit {number} {time.time()}\n", encoding="utf-8")
            await build("edit")
            await build("same")
    finally:
        await engine.close()
    edit_s = statistics.median(took["edit"])
    return {
        "first_s": took["first"][0],
        "edit_s": edit_s,
        "same_s": statistics.median(took["same"]),
        "ratio": edit_s / took["first"][0],
        "aim": "under a second after an edit",
        "is_met": edit_s < 1,
    }
