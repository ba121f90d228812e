"""How a run ends: in order, also after Ctrl-C; a plugin that keeps it from that is left behind.

Programs that plugins started do not outlive it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from arkdev.cli.children import descendants, end_descendants, pythons_own
from arkdev.cli.streams import leave_behind
from arkdev.errors import ExitCode
from arkdev.harness.hidden_tasks import hidden
from arkdev.harness.loop import new_event_loop

_T = TypeVar("_T")
GIVE_UP_AFTER_S = 3.0
_LEAVE_AFTER_S = 1.0
"""So long may what plugins left on the loop take to end."""


class _Unawaited(ThreadPoolExecutor):
    """For ``asyncio.to_thread``: a plugin's thread that never ends does not keep the loop open."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)


def run_interruptible(
    work: Coroutine[Any, Any, _T],
    *,
    on_give_up: Callable[[], None],
    on_programs_ended: Callable[[int], None] | None = None,
    give_up_after_s: float = GIVE_UP_AFTER_S,
) -> _T:
    """Run `work` on an event loop of its own; Ctrl-C, SIGTERM and a closed terminal cancel it.

    Raises `KeyboardInterrupt` when it was interrupted. An async plugin that blocks the loop cannot
    be cancelled: after `give_up_after_s` the process ends with code 130 from another thread.
    Programs that were started meanwhile and still run are ended at the end, however it comes, and
    their number is told.
    Records are whole lines on the disk at any moment, so nothing is torn by that.
    """
    with ExitStack() as at_last, asyncio.Runner(loop_factory=new_event_loop) as runner:
        loop = runner.get_loop()
        loop.set_default_executor(_Unawaited())
        task = loop.create_task(work)
        was_interrupted = threading.Event()
        programs_before = descendants()

        def end_programs() -> None:
            num_ended = end_descendants(but=programs_before | pythons_own())
            if num_ended and on_programs_ended:
                on_programs_ended(num_ended)

        def give_up() -> None:
            end_programs()
            on_give_up()
            os._exit(ExitCode.INTERRUPTED)

        def interrupt(_signal: int, _frame: object) -> None:
            if was_interrupted.is_set():
                return
            was_interrupted.set()
            timer = threading.Timer(give_up_after_s, give_up)
            timer.daemon = True
            timer.start()
            at_last.callback(timer.cancel)  # whoever called may have more to do
            loop.call_soon_threadsafe(task.cancel)

        before = {number: signal.signal(number, interrupt) for number in _interrupting()}
        try:
            return _run(loop, task)
        except asyncio.CancelledError:
            if was_interrupted.is_set():
                end_programs()
                raise KeyboardInterrupt from None
            raise
        finally:
            _run(loop, loop.create_task(_end_what_is_left(asyncio.all_tasks(loop))))
            end_programs()
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def ended_at_once() -> Iterator[None]:
    """End the process with code 130 when it is interrupted in the block, where nothing runs yet.

    For what loads for seconds: a `KeyboardInterrupt` that is raised while a library in C++ is
    imported can be lost there, or bring the process down.
    """

    def end(_signal: int, _frame: object) -> None:
        os._exit(ExitCode.INTERRUPTED)

    before = {number: signal.signal(number, end) for number in _interrupting()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupting() -> list[signal.Signals]:
    """The signals that end a run; under `nohup` a closed terminal does not."""
    found = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found


async def _end_what_is_left(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel what plugins left on the loop; what does not end is left to the end of the process.

    `asyncio.Runner` would wait for it without end.
    """
    if tasks:
        for task in tasks:
            task.cancel()
        ended, stubborn = await asyncio.wait(tasks, timeout=_LEAVE_AFTER_S)
        for task in ended:
            if not task.cancelled():
                task.exception()  # looked at, so that asyncio does not complain about it
        leave_behind(hidden(task) for task in stubborn)
    closing = asyncio.ensure_future(asyncio.get_running_loop().shutdown_asyncgens())
    _, stubborn = await asyncio.wait({closing}, timeout=_LEAVE_AFTER_S)
    if stubborn:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        leave_behind(hidden(task) for task in others)


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task[_T]) -> _T:
    """Run `task` to its end, whatever other tasks raise.

    Ctrl-C comes as a cancellation. A `SystemExit` or `KeyboardInterrupt` that leaves the loop is a
    plugin's, from a task that it started: whoever awaits that task gets it, and the loop goes on.
    """
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt):
            if task.done():
                raise
