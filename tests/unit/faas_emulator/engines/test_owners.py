import os
import subprocess
import sys
from dataclasses import replace

from arkdev.faas_emulator.engines.owners import is_gone, is_here, read_owner, this_process


def test_this_process_is_there_and_is_read_back_as_it_was_written():
    owner = this_process()
    assert read_owner(str(owner)) == owner
    assert owner.pid == os.getpid()
    assert not is_gone(owner)


def test_a_process_that_has_ended_is_gone():
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    assert is_gone(replace(this_process(), pid=int(ended.stdout)))


def test_a_process_id_that_another_process_has_now_is_gone():
    assert is_gone(replace(this_process(), start="1"))


def test_another_boot_of_this_machine_is_gone():
    assert is_gone(replace(this_process(), boot="before"))


def test_of_another_machine_or_another_namespace_of_process_ids_nothing_is_known():
    ended = replace(this_process(), start="1")
    assert not is_gone(replace(ended, machine="another"))
    assert not is_gone(replace(ended, pid_namespace="another"))
    assert is_here(ended)
    assert not is_here(replace(ended, machine="another"))
    assert not is_here(replace(ended, pid_namespace="another"))


def test_what_no_owner_is_written_like_is_none():
    assert read_owner("") is None
    assert read_owner("a/b/c/d/e") is None
    assert read_owner("1/2/3") is None
