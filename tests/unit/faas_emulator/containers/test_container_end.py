import pytest

from arkdev.faas_emulator.containers.container_end import container_end
from arkdev.faas_emulator.records import InvocationStatus


def end(*, peak=None, **state):
    state = {"Running": False, "OOMKilled": False, "ExitCode": 0, **state}
    return container_end({"State": state}, memory_mb=2048, memory_peak_mb=peak)


def test_one_that_runs_has_no_end():
    assert end(Running=True) is None


def test_out_of_memory_is_what_the_engine_says():
    found = end(OOMKilled=True, ExitCode=137)
    assert (found.status, found.detail) == (InvocationStatus.OUT_OF_MEMORY, "over its 2048 MiB")


def test_of_a_process_beside_the_worker_the_exit_code_is_told_too():
    found = end(OOMKilled=True, ExitCode=3)
    assert found.status is InvocationStatus.OUT_OF_MEMORY
    assert found.detail == "over its 2048 MiB (one of its processes; then exit code 3)"


def test_sigkill_at_the_limit_is_out_of_memory_where_the_engine_does_not_say_so():
    assert end(ExitCode=137, peak=2040.0).status is InvocationStatus.OUT_OF_MEMORY
    below = end(ExitCode=137, peak=500.0)
    assert (below.status, below.detail) == (InvocationStatus.CRASHED, "killed by SIGKILL")
    assert end(ExitCode=137).status is InvocationStatus.CRASHED


@pytest.mark.parametrize(
    ("code", "detail"),
    [(0, "exit code 0"), (3, "exit code 3"), (139, "killed by SIGSEGV"), (255, "exit code 255")],
)
def test_exit_codes_and_signals_are_told_apart(code, detail):
    found = end(ExitCode=code)
    assert (found.status, found.detail) == (InvocationStatus.CRASHED, detail)


def test_one_that_is_not_there_was_removed_by_somebody():
    found = container_end(None, memory_mb=2048, memory_peak_mb=None)
    assert found.status is InvocationStatus.LOST
    assert "somebody else" in found.detail
