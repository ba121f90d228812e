"""Sweeping and removing, with an engine that remembers what was removed."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from arkdev.errors import EngineError
from arkdev.faas_emulator.engines.deployments import LASTING, OWNER, deployment, sweep
from arkdev.faas_emulator.engines.owners import this_process
from arkdev.faas_emulator.images.image_plan import workspace_id

GONE = str(replace(this_process(), start="1"))
FOREIGN = str(replace(this_process(), machine="another", start="1"))


class RememberingEngine:
    """As much of an engine as sweeping needs."""

    def __init__(self, containers=(), networks=()):
        self.all_containers = dict(containers)
        self.all_networks = dict(networks)
        self.refused = set()

    async def containers(self, labels):
        return self._with(self.all_containers, labels)

    async def networks(self, labels):
        return self._with(self.all_networks, labels)

    @staticmethod
    def _with(things, labels):
        return [
            {"Id": name, "Labels": own}
            for name, own in things.items()
            if all(key in own and value in (None, own[key]) for key, value in labels.items())
        ]

    async def remove(self, name):
        await asyncio.sleep(0)
        if name in self.refused:
            raise EngineError("no")
        self.all_containers.pop(name)

    async def remove_network(self, name):
        assert not self.all_containers or not any(
            own.get("net") == name for own in self.all_containers.values()
        )
        self.all_networks.pop(name)


async def test_only_what_belongs_to_owners_that_are_gone_is_swept():
    engine = RememberingEngine(
        containers={
            "left": {OWNER: GONE},
            "mine": {OWNER: str(this_process())},
            "foreign": {OWNER: FOREIGN},
            "lasting": {OWNER: GONE, LASTING: "1"},
            "odd": {OWNER: "somebody"},
            "unlabelled": {},
        },
        networks={"left-net": {OWNER: GONE}, "bridge": {}},
    )
    swept = await sweep(engine)
    assert (swept.num_containers, swept.num_networks) == (1, 1)
    assert engine.all_containers.keys() == {"mine", "foreign", "lasting", "odd", "unlabelled"}
    assert engine.all_networks.keys() == {"bridge"}


async def test_what_was_swept_is_noted_at_the_next_start_and_nothing_is_where_nothing_was():
    notes = []
    engine = RememberingEngine(containers={"left": {OWNER: GONE}})
    async with deployment(engine, workspace=Path("/w"), on_note=notes.append):
        assert notes == [
            "removed what an arkdev that was killed had left: 1 containers, 0 networks"
        ]
    async with deployment(engine, workspace=Path("/w"), on_note=notes.append):
        assert len(notes) == 1


async def test_a_deployment_removes_its_own_at_the_end_also_when_it_is_cancelled():
    engine = RememberingEngine(containers={"other": {"arkdev.deployment": "another"}})
    entered = asyncio.Event()

    async def work():
        async with deployment(engine, workspace=Path("/w")) as made:
            engine.all_containers["own"] = made.labels
            engine.all_networks["own-net"] = made.labels
            entered.set()
            await asyncio.sleep(60)

    task = asyncio.ensure_future(work())
    await entered.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # again, while it releases
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.all_containers.keys() == {"other"}
    assert engine.all_networks == {}


async def test_a_lasting_deployment_keeps_its_own_unless_it_fails():
    engine = RememberingEngine()
    async with deployment(engine, workspace=Path("/w"), is_lasting=True) as made:
        engine.all_containers["kept"] = made.labels
    assert LASTING in engine.all_containers["kept"]
    with pytest.raises(ValueError, match="wrong"):
        async with deployment(engine, workspace=Path("/w"), is_lasting=True) as made:
            engine.all_containers["failed"] = made.labels
            raise ValueError("wrong")
    assert engine.all_containers.keys() == {"kept"}


async def test_what_cannot_be_swept_is_noted_and_holds_nobody_up():
    engine = RememberingEngine(containers={"a": {OWNER: GONE}, "b": {OWNER: GONE}})
    engine.refused = {"a"}
    swept = await sweep(engine)
    assert (swept.num_containers, swept.problems) == (1, ("no",))
    assert engine.all_containers.keys() == {"a"}


async def test_what_a_deployment_cannot_remove_of_its_own_is_an_error_after_the_rest_is_gone():
    engine = RememberingEngine()
    with pytest.raises(EngineError) as raised:
        async with deployment(engine, workspace=Path("/w")) as made:
            engine.all_containers |= {"a": made.labels, "b": made.labels}
            engine.refused = {"a"}
    assert "docker ps" in raised.value.hint
    assert engine.all_containers.keys() == {"a"}


async def test_labels_name_the_deployment_its_owner_and_its_workspace():
    async with deployment(RememberingEngine(), workspace=Path("/w")) as made:
        assert made.labels == {
            "arkdev.deployment": made.id,
            "arkdev.owner": str(this_process()),
            "arkdev.workspace": workspace_id(Path("/w")),
        }


async def test_names_of_one_deployment_differ_and_are_plain():
    async with deployment(RememberingEngine(), workspace=Path("/w")) as made:
        names = [made.new_name("my search/größe") for _ in range(2)]
    assert names == [f"arkdev-{made.id}-my-search-gr-e-{number}" for number in (1, 2)]
