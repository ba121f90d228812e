"""A short command in a container of its own."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from arkdev.errors import EngineError
from arkdev.faas_emulator.engines.engine import ContainerSpec, Engine, Stream
from arkdev.faas_emulator.releasing import carried_out


async def run_once(engine: Engine, spec: ContainerSpec, *, limit_s: float) -> bytes:
    """Run a container to its end and remove it; return its standard output.

    Raises `EngineError` when it fails, with its standard error, or is not done in time.
    """
    loop = asyncio.get_running_loop()
    output: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
    ended = asyncio.Event()

    def at_end() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(ended.set)

    creating = asyncio.ensure_future(engine.create(spec))
    attachment = None
    try:
        container = await asyncio.shield(creating)
        attachment = await engine.attach(
            container, take=lambda stream, data: output[stream].extend(data), at_end=at_end
        )
        await engine.start(container)
        async with asyncio.timeout(limit_s):
            await ended.wait()
        code = await _final_state(engine, container)
    except TimeoutError:
        raise EngineError(f"{spec.name} is not done after {limit_s:g} s") from None
    finally:
        await carried_out(_remove(engine, creating))
        if attachment is not None:
            attachment.close()
    if code != 0:
        text = output["stderr"].decode("utf-8", "replace").strip()
        raise EngineError(f"{spec.name} failed with exit code {code}: {text[-500:]}")
    return bytes(output["stdout"])


async def _final_state(engine: Engine, container: str) -> int:
    """Wait until the engine, too, knows that the container has ended; return its exit code."""
    for _ in range(200):
        inspected = await engine.inspect(container)
        if inspected is None:
            break
        if not inspected["State"]["Running"]:
            return int(inspected["State"]["ExitCode"])
        await asyncio.sleep(0.01)
    raise EngineError("the container engine has lost a container")


async def _remove(engine: Engine, creating: asyncio.Future[str]) -> None:
    """Remove what is being created, once it is."""
    await asyncio.wait([creating])
    if not creating.cancelled() and creating.exception() is None:
        await engine.remove(creating.result())
