"""A process that deploys a function and is killed: `python -m tests.docker.left_behind IMAGE`."""

import asyncio
import sys
from pathlib import Path

from arkdev.faas_emulator.choices import NetworkPolicy
from arkdev.faas_emulator.containers.container_launcher import ContainerLauncher, ContainerSettings
from arkdev.faas_emulator.engines.deployments import deployment
from arkdev.faas_emulator.engines.engine import open_engine
from tests.docker.conftest import function


async def main(image: str) -> None:
    engine = await open_engine()
    async with deployment(engine, workspace=Path.cwd()) as made:
        which = function()

        async def build() -> str:
            return image

        launcher = ContainerLauncher(
            [which],
            engine=engine,
            deployment=made,
            build=build,
            settings=ContainerSettings(network=NetworkPolicy.HOST_ONLY),
            on_note=lambda note: None,
        )
        await launcher.prepare()
        await launcher.start(which, on_log=lambda line: None)
        print(made.id, flush=True)
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
