"""The process from which those of a replay are forked: it has imported the plugins, and waits.

It is started as ``python -m arkdev.flows.replay_server DESCRIPTOR`` with a socket, and speaks
`arkdev.flows.replay_wire`:

* it gets the request and the tape's secrets, imports the plugins, and says whether it can fork;
* for each job it gets a socket too; it forks a process that does the job and tells the socket;
* it says how a process ended when it is asked.

Where it cannot fork safely, because importing the plugins started threads, it does one job itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

from arkdev.errors import ArkdevError
from arkdev.flows.replay_jobs import Job, ReplayProcess, Result, Told
from arkdev.flows.replay_plan import planned
from arkdev.flows.replay_wire import end_group, receive, send
from arkdev.flows.test_request import PluginTestRequest
from arkdev.job.workspace import find_workspace
from arkdev.runs.lines import cleaned
from arkdev.tape.callers import Workspace
from arkdev.tape.format import read_tape
from arkdev.tape.no_network import NetworkGuard
from arkdev.tape.patches import replayed_through
from arkdev.tape.redaction import Redaction
from arkdev.tape.replay import Replay

_TASKS = Path("/proc/self/task")


def main() -> None:
    """Serve until the other end of the socket is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command ends us when it is interrupted
    control = socket.socket(fileno=int(sys.argv[1]))
    try:
        (request, secrets), _ = receive(control)
        process = _prepared(request, secrets)
    except ArkdevError as error:
        send(control, ("failed", error))
        return
    send(control, ("ready", _can_fork()))
    _serve(control, process)


def _prepared(request: PluginTestRequest, secrets: tuple[str, ...]) -> ReplayProcess:
    assert request.replay is not None
    tape = read_tape(request.replay)
    workspace = Workspace(find_workspace(request.start).root)
    replay = Replay(tape, redaction=Redaction(secrets), workspace=workspace)
    guard = NetworkGuard(replay.mismatched)
    replayed_through(replay, workspace)  # for as long as this process lives
    process = ReplayProcess(planned(request, tape), replay, guard)
    asyncio.run(process.prepare())
    return process


def _can_fork() -> bool:
    """Tell whether this is the only thread: a fork would copy no other, but the locks they hold."""
    if not hasattr(os, "fork") or threading.active_count() > 1:
        return False
    return not _TASKS.exists() or len(list(_TASKS.iterdir())) == 1


def _serve(control: socket.socket, process: ReplayProcess) -> None:
    gc.collect()
    gc.freeze()  # so that collections in the forked processes do not copy every page
    running: set[int] = set()
    try:
        while True:
            (what, content), descriptors = receive(control)
            if what == "run here":
                control.close()
                _work(process, content, socket.socket(fileno=descriptors[0]))
            elif what == "ended":
                running.discard(content)
                status = os.waitpid(content, 0)[1]
                end_group(content)  # what it left alive, say the workers of a pool
                send(control, ("ended", (content, status)))
            else:
                pid = os.fork()
                with contextlib.suppress(OSError):  # both do it: nobody knows who is first
                    os.setpgid(pid, pid or os.getpid())
                if pid == 0:
                    control.close()
                    _work(process, content, socket.socket(fileno=descriptors[0]))
                running.add(pid)
                os.close(descriptors[0])
                send(control, ("forked", pid))
    except (EOFError, OSError):
        for pid in running:  # nobody is there to hear of them
            end_group(pid)


def _work(process: ReplayProcess, job: Job, connection: socket.socket) -> NoReturn:
    """Do a job, tell the connection, and end without the exit handlers of plugins and libraries."""
    lock = threading.Lock()
    # a process that the plugin forks would hold it open
    os.register_at_fork(after_in_child=connection.close)

    def tell(what: str, content: Any = None) -> None:
        with lock, contextlib.suppress(OSError):  # nobody listens, or this is a fork
            send(connection, (what, content))

    told = Told(log=lambda line: tell("log", line), attempt=lambda: tell("attempt"))
    try:
        tell("attempt")
        result = asyncio.new_event_loop().run_until_complete(process.run(job, told))
        tell("result", _picklable(result))
    except BaseException as error:  # noqa: BLE001 (a fault of arkdev, to be raised by the command)
        tell("fault", f"{type(error).__name__}: {error}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _picklable(result: Result) -> Result:
    """Return a result that can be sent: what plugins put into it may be anything."""
    try:
        pickle.dumps(result)
    except Exception:  # noqa: BLE001 (whatever an object of the plugin's raises)
        for finished in result if isinstance(result, list) else ():
            record = finished.record
            plain = cleaned({"extra": record.extra, "config": record.config})
            vars(record).update(extra=plain["extra"], config=plain["config"])
    return result


if __name__ == "__main__":
    main()
