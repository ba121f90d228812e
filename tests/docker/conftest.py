"""A real container engine. Without one these tests are skipped, or fail where one is required."""

import io
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from arkdev.errors import EngineError, MissingExtraError
from arkdev.faas_emulator.containers.container_launcher import ContainerLauncher, ContainerSettings
from arkdev.faas_emulator.engines.deployments import deployment
from arkdev.faas_emulator.engines.engine import open_engine
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.plugin.decorators import PluginKind
from arkdev.plugin.runtime import Runtime

STUB_IMAGE = f"arkdev-test-stub:{os.getpid()}"
_DOCKERFILE = b"""FROM python:3.11-slim
COPY stub_worker.py /stub_worker.py
CMD ["python", "/stub_worker.py"]
"""


@dataclass(frozen=True)
class SmallFunction(FunctionSpec):
    """Smaller than what `Runtime.instance` offers: a test must not fill gigabytes."""

    small_memory_mb: int = 96

    @property
    def memory_mb(self) -> int:
        return self.small_memory_mb


@pytest.fixture
async def engine():
    """The engine of this machine; the same address is opened again for each test."""
    try:
        opened = await open_engine()
    except (EngineError, MissingExtraError) as error:
        if os.environ.get("ARKDEV_REQUIRE_ENGINES") == "1":
            raise
        pytest.skip(f"no container engine: {error.message.splitlines()[0]}")
    yield opened
    await opened.close()


_built = []


@pytest.fixture
def stub_image(engine):
    """An image whose worker does as it is told; built once."""
    if not _built:
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as archive:
            script = Path(__file__).with_name("stub_worker.py").read_bytes()
            for name, data in (("Dockerfile", _DOCKERFILE), ("stub_worker.py", script)):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(data), 0o644
                archive.addfile(entry, io.BytesIO(data))
        context.seek(0)
        platform = engine.images.platform()
        messages = engine.images.build(context, tag=STUB_IMAGE, platform=platform, build_args={})
        for message in messages:
            assert "error" not in message, message
        _built.append(STUB_IMAGE)
    return STUB_IMAGE


@pytest.fixture(scope="session", autouse=True)
def stub_image_is_removed():
    yield
    if _built:
        import docker

        client = docker.from_env()
        client.images.remove(STUB_IMAGE)
        client.close()


def function(name="search", *, root=Path("/nowhere"), envs=None, memory_mb=96, **runtime):
    return SmallFunction(
        name=name,
        reference=f"plugins.{name}:{name}",
        root=root,
        kind=PluginKind.SINGLE_ROLLOUT,
        runtime=Runtime(**runtime),
        place=f"plugins/{name}.py:1",
        envs=envs or {},
        small_memory_mb=memory_mb,
    )


@dataclass
class Deployed:
    launcher: ContainerLauncher
    id: str
    notes: list
    lines: list

    async def start(self, which):
        return await self.launcher.start(which, on_log=self.lines.append)


@pytest.fixture
async def deploy(engine, stub_image, tmp_path):
    """Deploy functions: `await deploy(function(), ...)`; all is gone afterwards."""
    entered = []

    async def deployed(*functions, **settings):
        context = deployment(engine, workspace=tmp_path)
        made = await context.__aenter__()
        notes = []

        async def build():
            return stub_image

        launcher = ContainerLauncher(
            functions,
            engine=engine,
            deployment=made,
            build=build,
            settings=ContainerSettings(**settings),
            on_note=notes.append,
        )
        entered.append((context, launcher))
        await launcher.prepare()
        return Deployed(launcher, made.id, notes, [])

    yield deployed
    for context, launcher in reversed(entered):
        await launcher.close()
        await context.__aexit__(None, None, None)
