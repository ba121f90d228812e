from arkdev.faas_emulator.containers.container_limits import container_limits, tmp_mb
from tests.unit.faas_emulator.engines.container_engines import facts, function


def test_a_machine_that_is_large_enough_enforces_the_size_as_it_is():
    limits = container_limits(function(instance="CPU2MEM4"), facts())
    assert (limits.num_cpus, limits.memory_mb, limits.notes) == (2.0, 4096, ())


def test_more_cpus_than_the_machine_has_are_clamped_and_said():
    limits = container_limits(function(instance="CPU16MEM32"), facts(memory_mb=64_000))
    assert (limits.num_cpus, limits.memory_mb) == (8.0, 32_768)
    (note,) = limits.notes
    assert "search (CPU16MEM32): this machine has 8 of the 16 CPUs" in note


def test_more_memory_than_the_machine_has_is_clamped_and_said():
    limits = container_limits(function(instance="CPU16MEM128"), facts(num_cpus=64))
    assert limits.memory_mb == 16_000
    (note,) = limits.notes
    assert "16,000 of the 131,072 MiB" in note


def test_what_an_engine_cannot_limit_is_not_claimed():
    rootless = facts(is_rootless=True, limits_cpu=False, limits_memory=False)
    limits = container_limits(function(instance="CPU16MEM128"), rootless)
    assert (limits.num_cpus, limits.memory_mb) == (None, None)
    assert len(limits.notes) == 2
    assert all("cannot limit" in note for note in limits.notes)


def test_memory_beyond_the_limit_in_swap_is_said_where_swap_cannot_be_limited():
    (note,) = container_limits(function(), facts(limits_swap=False)).notes
    assert "cannot limit swap" in note


def test_the_virtual_machine_of_a_desktop_engine_is_named():
    (note,) = container_limits(
        function(instance="CPU16MEM32"), facts(is_virtual=True, memory_mb=64_000)
    ).notes
    assert "the engine's virtual machine has 8" in note


def test_tmp_is_half_of_the_memory_and_never_too_small_to_use():
    assert [tmp_mb(2048), tmp_mb(8)] == [1024, 16]
