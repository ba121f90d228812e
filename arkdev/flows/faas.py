"""``--faas``: the plugins of a run in instances of the FaaS emulator (docs/faas.md).

::

    plan.faas ─► instance_source ─► functions_host ─► FaasHost ─► pools ─► instances
    (checked)    (image, before     (launcher,
                  the run folder)    warm pools)
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from arkdev.errors import InstanceError, PluginLoadError
from arkdev.faas_emulator.functions import FunctionSpec
from arkdev.faas_emulator.host import Deployed, FaasHost, Requests
from arkdev.faas_emulator.packages.undeclared import undeclared_hint
from arkdev.faas_emulator.pool import Pool, PoolEvents
from arkdev.faas_emulator.records import InstanceRecord, InvocationRecord
from arkdev.faas_emulator.worker.log_wire import OutputLine
from arkdev.faas_emulator.worker.wire import ARK_URL_VARIABLE
from arkdev.flows.faas_instances import InstanceSource, OpenLauncher, Say
from arkdev.harness.functions_report import FUNCTION_EVENT
from arkdev.observe.log_lines import BoundedLog, LogLine
from arkdev.plugin.host import InProcessHost, MeasuredHost
from arkdev.runs.function_records import FunctionCallRecord, FunctionInstanceRecord
from arkdev.runs.writer import RunWriter, iso_time

_KEY_OF_JUDGE = "scripted"


@dataclass(frozen=True)
class Told:
    """Who is told of what happens in the functions of a run."""

    folder: RunWriter
    log: Callable[[LogLine], None]
    say: Say


@asynccontextmanager
async def functions_host(
    source: InstanceSource | None, *, gateway_url: str, has_judge: bool, told: Told
) -> AsyncIterator[MeasuredHost]:
    """Start the pools of a run's functions; without ``--faas`` plugins run in this process.

    `gateway_url` is where the sessions answer. With `has_judge` calls to Ark go to the scripted
    judge of the run. One instance of each function at least is started before anything runs.
    Raises `PluginLoadError` when one cannot be.
    """
    if source is None:
        yield InProcessHost()
        return
    judge = _judge_envs() if has_judge else {}
    planned = source.plan.functions
    specs = [replace(each.spec, envs={**judge, **each.spec.envs}) for each in planned]
    async with AsyncExitStack() as stack:
        opened = await source.launcher_for(specs)
        stack.push_async_callback(opened.launcher.close)
        client = import_module("arkdev.faas_emulator.instance_client").HttpInstanceClient()
        stack.push_async_callback(client.close)
        requests = Requests()
        recorder = FunctionRecorder(told, requests)
        stack.callback(recorder.finish)
        functions = []
        for each, spec in zip(planned, specs, strict=True):
            told.folder.event(FUNCTION_EVENT, **_limits(spec, opened, kind=source.kind.value))
            pool = Pool(spec, opened.launcher, client, recorder.events())
            functions.append(Deployed(each.loaded, pool))
        host = FaasHost(
            functions,
            requests=requests,
            gateway_url=await opened.inside(gateway_url),
            built_in=InProcessHost(),
        )
        stack.push_async_callback(host.close)
        await _warm(host, source, told.say)
        yield host


async def _warm(host: FaasHost, source: InstanceSource, say: Say) -> None:
    started = time.monotonic()
    try:
        await asyncio.gather(*(pool.warm() for pool in host.pools))
    except InstanceError as error:
        hints = [error.hint, undeclared_hint(source.plan.undeclared)]
        hint = "\n".join(filter(None, hints))
        raise PluginLoadError(error.message, where=error.where, hint=hint) from error
    count = sum(pool.num_instances for pool in host.pools)
    say(f"instances ready: {count}, in {time.monotonic() - started:.1f} s")


def _judge_envs() -> dict[str, str]:
    """Return what lets a function reach the scripted judge: as in arkdev's own process."""
    url = os.environ["ARK_BASE_URL"]
    return {"ARK_BASE_URL": url, "ARK_API_KEY": _KEY_OF_JUDGE, ARK_URL_VARIABLE: url}


def _limits(spec: FunctionSpec, opened: OpenLauncher, *, kind: str) -> dict[str, Any]:
    limits = opened.launcher.limits(spec)
    return {
        "name": spec.name,
        "plugin_kind": spec.kind.value,
        "instance": kind,
        "runtime": spec.runtime.model_dump(mode="json"),
        "max_concurrency": spec.runtime.max_concurrency,
        "min_replicas": spec.min_replicas,
        "max_replicas": spec.max_replicas,
        "timeout_s": spec.timeout_s,
        "num_cpus": spec.num_cpus,
        "memory_mb": spec.memory_mb,
        "enforced_cpus": limits.num_cpus,
        "enforced_memory_mb": limits.memory_mb,
        "notes": list(limits.notes),
    }


class FunctionRecorder:
    """Writes down what happens in the pools of a run."""

    def __init__(self, told: Told, requests: Requests) -> None:
        self._folder = told.folder
        self._requests = requests
        self._log = BoundedLog(told.log, mask=told.folder.masked_output)

    def events(self) -> PoolEvents:
        """Return what a pool that begins now tells."""
        began = time.time()
        return PoolEvents(
            on_log=self._on_log,
            on_invocation=lambda record: self._on_invocation(record, began),
            on_instance=lambda record: self._on_instance(record, began),
        )

    def finish(self) -> None:
        """Say which lines are left out of the log."""
        self._log.finish()

    def _on_log(self, line: OutputLine) -> None:
        self._log.add(line.log_line(self._requests.place_of(line.request_id)))

    def _on_invocation(self, record: InvocationRecord, began: float) -> None:
        place = self._requests.place_of(record.request_id)
        self._folder.invocation(
            FunctionCallRecord(
                at=_iso(began + record.queued_at_s),
                function=record.function,
                request_id=record.request_id,
                trajectory_ids=place.trajectory_ids if place else (),
                attempt=place.attempt if place else None,
                grader=place.grader if place else None,
                step=place.step if place else None,
                instance_id=record.instance_id,
                status=str(record.status),
                queued_s=record.queued_s,
                cold_start_s=record.cold_start_s,
                service_s=record.service_s,
                num_concurrent=record.num_concurrent,
            )
        )

    def _on_instance(self, record: InstanceRecord, began: float) -> None:
        fields = asdict(record)
        started_at = _iso(began + fields.pop("started_at_s"))
        ended_at = _iso(began + fields.pop("ended_at_s"))
        self._folder.instance(
            FunctionInstanceRecord(started_at=started_at, ended_at=ended_at, **fields)
        )


def _iso(at: float) -> str:
    return iso_time(datetime.fromtimestamp(at, UTC))
