"""Building an image through an engine that is a script; real ones are in tests/docker."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest

from arkdev.errors import BuildError
from arkdev.faas_emulator.images.build_output import BuildOutput
from arkdev.faas_emulator.images.image import BuiltImage, build_image, prune_images
from arkdev.faas_emulator.images.image_engine import EngineImage
from arkdev.faas_emulator.packages.package import PluginPackage, plugin_package
from arkdev.faas_emulator.requirement_files.requirements import read_requirements
from arkdev.job.workspace import find_workspace

AMD64 = EngineImage("sha256:ba5e", ("python:3.11-slim",), "linux/amd64", "2026-01-01T00:00:00Z")
ARM64 = EngineImage("sha256:ba5f", ("python:3.11-slim",), "linux/arm64", "2026-01-01T00:00:00Z")


class Stream:
    def __init__(self, messages: list[dict[str, Any]], *, is_endless: bool = False) -> None:
        self._messages = messages
        self._is_endless = is_endless
        self.is_reading = threading.Event()
        self.is_closed = threading.Event()

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        yield from self._messages
        self.is_reading.set()
        if self._is_endless:
            assert self.is_closed.wait(60)

    def close(self) -> None:
        self.is_closed.set()


class ScriptedEngine:
    """An engine that says what it is told to say."""

    def __init__(self, messages: list[dict[str, Any]], *, base: EngineImage | None = AMD64) -> None:
        self.stream = Stream(messages)
        self.there = {"python:3.11-slim": base} if base else {}
        self.pulled: list[tuple[str, str]] = []
        self.in_registry: EngineImage | None = AMD64
        self.built: list[str] = []
        self.removed: list[str] = []
        self.in_use: set[str] = set()

    def platform(self) -> str:
        return "linux/amd64"

    def image(self, reference: str) -> EngineImage | None:
        return self.there.get(reference)

    def images(self, *, label: str) -> list[EngineImage]:
        return [image for tag, image in self.there.items() if tag.startswith("arkdev-function:")]

    def pull(self, reference: str, *, platform: str) -> Stream:
        self.pulled.append((reference, platform))
        if self.in_registry is None:
            return Stream([{"error": "manifest unknown"}])
        self.there[reference] = self.in_registry
        return Stream([{"status": "Pulling from library/python", "id": "3.11-slim"}])

    def build(
        self, context: IO[bytes], *, tag: str, platform: str, build_args: Mapping[str, str]
    ) -> Stream:
        self.built.append(tag)
        if not any("error" in message for message in self.stream._messages):
            self.there[tag] = EngineImage("sha256:new", (tag,), platform, "2026-02-01T00:00:00Z")
        return self.stream

    def remove_image(self, image_id: str) -> bool:
        if image_id in self.in_use:
            return False
        self.removed.append(image_id)
        return True


@pytest.fixture
def package(tmp_path: Path) -> PluginPackage:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/a.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "requirements.txt").write_text("# pinned\nidna==3.10\n", encoding="utf-8")
    return plugin_package(find_workspace(tmp_path))


async def build(engine: ScriptedEngine, package: PluginPackage, **given: Any) -> BuiltImage:
    given.setdefault("on_output", lambda line: None)
    wanted = read_requirements(package.root / "requirements.txt")
    return await build_image(package, wanted, engine=engine, **given)


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"stream": text} for text in texts]


async def test_an_image_that_is_there_is_not_built_again(package: PluginPackage) -> None:
    engine = ScriptedEngine(said("Successfully built 1\n"))
    first = await build(engine, package)
    second = await build(engine, package)
    assert (first.was_cached, second.was_cached) == (False, True)
    assert (first.id, first.tag) == (second.id, second.tag)
    assert engine.built == [first.tag]


async def test_a_base_for_another_platform_is_fetched(package: PluginPackage) -> None:
    engine = ScriptedEngine([], base=ARM64)
    lines: list[str] = []
    await build(engine, package, on_output=lines.append)
    assert engine.pulled == [("python:3.11-slim", "linux/amd64")]
    assert "base python:3.11-slim for linux/amd64: fetching it" in lines
    assert "    3.11-slim: Pulling from library/python" in lines


@pytest.mark.parametrize(
    ("in_registry", "message"),
    [(None, "cannot be fetched: manifest unknown"), (ARM64, "is for linux/arm64, not for linux/a")],
)
async def test_a_base_that_cannot_be_had_is_an_error(
    package: PluginPackage, in_registry: EngineImage | None, message: str
) -> None:
    engine = ScriptedEngine([], base=None)
    engine.in_registry = in_registry
    with pytest.raises(BuildError, match=message):
        await build(engine, package)
    assert engine.built == []


async def test_requirements_that_cannot_be_installed_are_told_with_their_line(
    package: PluginPackage,
) -> None:
    engine = ScriptedEngine(
        [
            *said("Step 5/15 : COPY requirements/ /opt/\n", " ---> 1\n", "Step 6/15 : RUN pip\n"),
            *said("Collecting idna\n", "\x1b[91mERROR: No matching distribution found for "),
            *said("idna==3.10\n\x1b[0m"),
            {"error": "non-zero code: 1", "errorDetail": {"message": "non-zero code: 1"}},
        ]
    )
    with pytest.raises(BuildError, match=r"No matching distribution found for idna==3\.10") as got:
        await build(engine, package)
    assert got.value.where.endswith("requirements.txt:2")
    assert "  | Collecting idna" in got.value.message
    assert "check the name" in got.value.hint


async def test_another_failure_names_its_step(package: PluginPackage) -> None:
    messages = [
        *said("Step 1/15 : FROM x\n", " ---> 1\n", "Step 2/15 : RUN x\n", " ---> Running in 2\n"),
        {"error": "exec /usr/bin/python: exec format error"},
    ]
    with pytest.raises(BuildError, match=r"cannot be built, at user: .*exec format error") as got:
        await build(ScriptedEngine(messages), package)
    assert "the engine cannot run linux/amd64" in got.value.hint


async def test_a_cancelled_build_is_hung_up(package: PluginPackage) -> None:
    engine = ScriptedEngine([])
    engine.stream = Stream(said("Step 1/15 : FROM x\n"), is_endless=True)
    running = asyncio.create_task(build(engine, package))
    assert await asyncio.to_thread(engine.stream.is_reading.wait, 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert engine.stream.is_closed.is_set()


def test_older_images_of_the_workspace_go_unless_they_are_in_use() -> None:
    engine = ScriptedEngine([])
    for day in range(1, 7):
        tag = f"arkdev-function:{day}"
        image = EngineImage(str(day), (tag,), "linux/amd64", f"2026-01-0{day}T00:00:00Z")
        engine.there[tag] = image
    engine.in_use = {"2"}
    assert prune_images(engine, workspace="w", but_not="1") == 2
    assert engine.removed == ["4", "3"]


STEPS = ["base x", "user", "user", "requirements", "requirements", "plugins"]


def shown(*texts: str) -> list[str]:
    lines: list[str] = []
    output = BuildOutput(STEPS, on_output=lines.append)
    for message in said(*texts):
        output.take(message)
    output.finish()
    return lines


def test_an_engines_output_is_told_in_our_steps() -> None:
    lines = shown(
        *("Step 1/6 : FROM x", "\n", " ---> d0c2\n", "Step 2/6 : RUN a", "\n"),
        *(" ---> Using cache\n", " ---> 27aa\n", "Step 3/6 : ENV b\n", " ---> Using cache\n"),
        *("Step 4/6 : COPY c\n", " ---> Using cache\n", " ---> 1\n", "Step 5/6 : RUN pip\n"),
        *(" ---> Running in 2\n", "Collec", "ting idna\n\x1b[91mWARNING: old\n\x1b[0m"),
        *("Removing intermediate container 2\n", " ---> 3\n", "Step 6/6 : COPY d\n", " ---> 4\n"),
        *("Successfully built 4\n", "Successfully tagged x:y\n"),
    )
    assert lines == [
        "  [1/4] base x",
        "  [2/4] user (cached)",
        "  [3/4] requirements",
        "    Collecting idna",
        "    WARNING: old",
        "  [4/4] plugins",
    ]


def test_podmans_output_is_read_too() -> None:
    lines = shown(
        *("STEP 1/6: FROM x\n", "STEP 2/6: RUN a\n", "--> Using cache 1f\n", "--> 1f\n"),
        *("STEP 3/6: ENV b\n", "--> 2f\n", "STEP 6/6: COPY d\n", "COMMIT x:y\n", "--> 3f\n"),
    )
    assert lines == ["  [1/4] base x", "  [2/4] user", "  [4/4] plugins"]


def test_a_step_is_cached_when_all_of_it_is() -> None:
    output = BuildOutput(STEPS, on_output=lambda line: None)
    for message in said("Step 4/6 : COPY c\n", " ---> Using cache\n", "Step 5/6 : RUN pip\n"):
        output.take(message)
    assert not output.were_cached("requirements")
    output.take({"stream": " ---> Using cache\n"})
    assert output.were_cached("requirements")
