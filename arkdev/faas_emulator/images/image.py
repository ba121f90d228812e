"""Builds the image of a workspace's functions, once for each content (see `image_plan`)."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO, Any, cast

from arkdev.errors import BuildError, EngineError
from arkdev.faas_emulator.images.build_output import BuildOutput
from arkdev.faas_emulator.images.image_engine import BuildStream, EngineImage, ImageEngine
from arkdev.faas_emulator.images.image_plan import (
    DEFAULT_BASE,
    WORKSPACE_LABEL,
    ImagePlan,
    check_base,
    plan_image,
    workspace_id,
)
from arkdev.faas_emulator.packages.package import PluginPackage
from arkdev.faas_emulator.requirement_files.install_errors import (
    InstallFailure,
    install_failure,
    last_lines,
)
from arkdev.faas_emulator.requirement_files.platforms import DEFAULT_PLATFORM
from arkdev.faas_emulator.requirement_files.requirements import Requirements

NUM_KEPT_IMAGES = 3
"""Images of a workspace that are kept, the newest ones; an older one goes unless it is in use."""
_CONTEXT_IN_MEMORY_BYTES = 32 * 1024**2

OnOutput = Callable[[str], None]


@dataclass(frozen=True)
class BuiltImage:
    """An image that is there."""

    id: str
    tag: str
    was_cached: bool
    """It was there already: nothing was built."""
    requirements_were_cached: bool
    duration_s: float


async def build_image(
    package: PluginPackage,
    requirements: Requirements,
    *,
    engine: ImageEngine,
    base: str = DEFAULT_BASE,
    platform: str = DEFAULT_PLATFORM,
    on_output: OnOutput,
) -> BuiltImage:
    """Build the image of a package and its requirements, or find it.

    `on_output` is told of each line. Older images of the workspace are removed. Raises `BuildError`
    with the cause when it cannot be built, `UsageError` for a base or platform that is none, and
    `EngineError` when the engine does not answer. When cancelled, the build is ended.
    """
    started = time.monotonic()
    for line in package.summary():
        on_output(line)
    check_base(base)
    found = await _base_image(engine, base, platform=platform, on_output=on_output)
    plan = plan_image(
        package,
        requirements,
        base=(base, found.id),
        platform=platform,
        engine_platform=await asyncio.to_thread(engine.platform),
        environ=os.environ,
    )
    for note in plan.notes:
        on_output(note)
    with SpooledTemporaryFile(max_size=_CONTEXT_IN_MEMORY_BYTES) as file:
        context = cast("IO[bytes]", file)
        tag = await asyncio.to_thread(
            plan.write_context, context, package=package, requirements=requirements
        )
        there = await asyncio.to_thread(engine.image, tag)
        if there is not None:
            on_output(f"image {tag} is there already")
            return BuiltImage(there.id, tag, True, True, time.monotonic() - started)
        output = BuildOutput(plan.words, on_output=on_output)
        await _build(engine, plan, context=context, tag=tag, output=output)
    if output.error:
        raise _failure(output, plan, requirements)
    built = await asyncio.to_thread(engine.image, tag)
    if built is None:
        raise BuildError(f"the engine built no image {tag}" + last_lines(output.lines))
    duration_s = time.monotonic() - started
    on_output(f"image {tag} built in {duration_s:.1f} s")
    workspace = workspace_id(package.root)
    await asyncio.to_thread(prune_images, engine, workspace=workspace, but_not=built.id)
    were_cached = output.were_cached(plan.requirements_step)
    return BuiltImage(built.id, tag, False, were_cached, duration_s)


def prune_images(engine: ImageEngine, *, workspace: str, but_not: str) -> int:
    """Remove a workspace's images except its newest ones; return how many are gone.

    The image `but_not` stays, and counts among the `NUM_KEPT_IMAGES`. One that a container uses
    stays as well.
    """
    images = engine.images(label=f"{WORKSPACE_LABEL}={workspace}")
    others = [image for image in images if image.id != but_not]
    others.sort(key=lambda image: image.created, reverse=True)
    return sum(engine.remove_image(image.id) for image in others[NUM_KEPT_IMAGES - 1 :])


async def _base_image(
    engine: ImageEngine, base: str, *, platform: str, on_output: OnOutput
) -> EngineImage:
    """The base as the engine has it, fetched when it has none for the platform."""
    found = await asyncio.to_thread(engine.image, base)
    if found is not None and found.platform == platform:
        return found
    on_output(f"base {base} for {platform}: fetching it")
    output = BuildOutput([], on_output=on_output)
    try:
        await _follow(lambda: engine.pull(base, platform=platform), output)
    except EngineError as error:  # it has just answered: this is of the registry
        output.error = error.message
    found = None if output.error else await asyncio.to_thread(engine.image, base)
    if found is None:
        raise BuildError(
            f"the base image {base} cannot be fetched: {output.error or 'the engine has none'}",
            hint="check its name and the network, or fetch it with your engine's own pull",
        )
    if found.platform != platform:
        raise BuildError(
            f"the base image {base} is for {found.platform}, not for {platform}",
            hint="name a base image that there is for the functions' platform",
        )
    return found


async def _build(
    engine: ImageEngine, plan: ImagePlan, *, context: IO[bytes], tag: str, output: BuildOutput
) -> None:
    await _follow(
        lambda: engine.build(context, tag=tag, platform=plan.platform, build_args=plan.build_args),
        output,
    )


class _HangUp:
    """Closes a stream that a thread reads, once it is asked to, whichever comes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream: BuildStream | None = None
        self._is_asked = False

    def hold(self, stream: BuildStream) -> bool:
        """Take the stream; False when it is closed at once."""
        with self._lock:
            self._stream = stream
            if self._is_asked:
                stream.close()
            return not self._is_asked

    def ask(self) -> None:
        with self._lock:
            self._is_asked = True
            if self._stream is not None:
                self._stream.close()


async def _follow(start: Callable[[], BuildStream], output: BuildOutput) -> None:
    """Give a stream's messages to `output` as they come; end the stream when cancelled."""
    loop = asyncio.get_running_loop()
    hang_up = _HangUp()

    def read() -> None:
        stream = start()
        if hang_up.hold(stream):
            try:
                for message in stream:
                    loop.call_soon_threadsafe(take, message)
            finally:
                stream.close()

    def take(message: Mapping[str, Any]) -> None:
        if not reading.cancelled():
            output.take(message)

    reading = asyncio.ensure_future(asyncio.to_thread(read))
    try:
        await reading
    except asyncio.CancelledError:
        hang_up.ask()
        raise
    output.finish()


def _failure(output: BuildOutput, plan: ImagePlan, requirements: Requirements) -> BuildError:
    if output.step == plan.requirements_step:
        failure = install_failure(output.lines, requirements)
        message = f"requirements cannot be installed: {failure.cause}"
    else:
        said = output.lines[-1] if output.lines else output.error
        failure = InstallFailure(said, "", _advice(output, plan))
        message = f"the image cannot be built, at {output.step or 'its start'}: {failure.cause}"
    message += last_lines(output.lines, but_not=failure.cause)
    return BuildError(message, where=failure.where, hint=failure.advice)


def _advice(output: BuildOutput, plan: ImagePlan) -> str:
    text = " ".join([output.error, *output.lines])
    if "exec format error" in text:
        return (
            f"the engine cannot run {plan.platform}: install QEMU's handlers (binfmt), or choose "
            "its own platform"
        )
    if "executable file not found" in text or "no such file or directory" in text:
        return f"a base image needs `python` with pip, as {DEFAULT_BASE} has"
    if "No space left on device" in text or "no space left on device" in text:
        return "make room on the engine's disk"
    return ""
