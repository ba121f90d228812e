"""An instance that a pool has started, and what is to be told of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from arkdev.faas_emulator.instances import Instance, InstanceEnd
from arkdev.faas_emulator.records import InstanceRecord


@dataclass
class LiveInstance:
    """One instance, from when it is ready until it is stopped. Times are the pool's clock's."""

    number: int
    instance: Instance
    ordered_at: float
    is_new: bool = True
    """Nothing has happened in the pool since it was ready."""
    num_invocations: int = 0
    end: asyncio.Task[InstanceEnd | None] | None = None
    """Of the look at whether it has ended, once a call was lost."""
    ending: str = ""

    def record(self, *, function: str, began: float) -> InstanceRecord:
        """Return what is known of it while it runs; `began` is when the pool did."""
        return InstanceRecord(
            instance_id=self.instance.id,
            function=function,
            started_at_s=self.ordered_at - began,
            ready_s=self.instance.ready_s,
            import_s=self.instance.import_s,
            ended_at_s=None,
            ending=self.ending,
            num_invocations=self.num_invocations,
            memory_peak_mb=None,
            cpu_s=None,
        )
