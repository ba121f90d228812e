"""What ends a run from outside."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

from arkdev.cli.interrupts import run_interruptible


async def hung_up():
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.sleep(0.2)
    return "ended by itself"


def test_a_closed_terminal_ends_a_run():
    with pytest.raises(KeyboardInterrupt):
        run_interruptible(hung_up(), on_give_up=lambda: None, give_up_after_s=600)
    # ended in order, it does not end the process later on
    waiting = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    for each in waiting:
        each.join(60)
    assert [each for each in waiting if each.is_alive()] == []


def test_under_nohup_a_closed_terminal_does_not_end_a_run():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run_interruptible(hung_up(), on_give_up=lambda: None) == "ended by itself"
    finally:
        signal.signal(signal.SIGHUP, before)


LOADS = """
import time
from arkdev.cli.interrupts import ended_at_once

with ended_at_once():
    print("loading", flush=True)
    for _ in range(600):
        try:
            time.sleep(0.1)
        except KeyboardInterrupt:  # as a library that loses it
            pass
"""


@pytest.mark.parametrize("interruption", [signal.SIGINT, signal.SIGTERM])
def test_what_loads_ends_at_once_whatever_a_library_makes_of_interruptions(interruption):
    command = [sys.executable, "-c", LOADS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "loading\n"
        process.send_signal(interruption)
        assert process.wait(300) == 130
