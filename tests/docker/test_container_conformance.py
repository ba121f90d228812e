"""Instances that are containers keep to what all instances keep to."""

from __future__ import annotations

import pytest

from arkdev.faas_emulator.containers.container_launcher import ContainerLauncher
from arkdev.faas_emulator.engines.deployments import deployment as engine_deployment
from arkdev.faas_emulator.images.image import build_image
from arkdev.faas_emulator.packages.package import plugin_package
from arkdev.faas_emulator.requirement_files.requirements import Requirements
from arkdev.job.workspace import find_workspace
from tests.faas_conformance import *  # noqa: F403

pytestmark = pytest.mark.docker

_first_tag: list[str] = []
"""The first image is kept to the end: without it the engine would drop the layers of all."""


@pytest.fixture
async def new_launcher(engine, tmp_path):
    """Builds a workspace's image when a launcher is prepared; nothing of it is left."""
    tags = []
    async with engine_deployment(engine, workspace=tmp_path) as made:

        def launcher_of(root, functions):
            async def build():
                built = await build_image(
                    plugin_package(find_workspace(root)),
                    Requirements(),
                    engine=engine.images,
                    on_output=lambda line: None,
                )
                tags.append(built.tag)
                return built.tag

            return ContainerLauncher(
                functions, engine=engine, deployment=made, build=build, on_note=print
            )

        yield launcher_of
    for tag in tags:
        if not _first_tag:
            _first_tag.append(tag)
        elif tag not in _first_tag:
            assert engine.images.remove_image(tag)


@pytest.fixture(scope="module", autouse=True)
def first_image_is_removed():
    yield
    if _first_tag:
        import docker

        client = docker.from_env()
        client.images.remove(_first_tag[0])
        client.close()
