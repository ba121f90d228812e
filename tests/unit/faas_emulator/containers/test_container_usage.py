from arkdev.faas_emulator.containers.container_usage import cgroup_files, larger, usage_of_stats
from arkdev.faas_emulator.instances import InstanceUsage

CONTAINER = "c0ffee"


def machine(folder, cgroup, files):
    proc = folder / "proc" / "42"
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text(cgroup, encoding="utf-8")
    for name, text in files.items():
        path = folder / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return cgroup_files(42, CONTAINER, mount=folder / "cgroup", proc=folder / "proc")


def test_control_groups_v1(tmp_path):
    files = machine(
        tmp_path,
        f"9:memory:/docker/{CONTAINER}\n3:cpu,cpuacct:/docker/{CONTAINER}\n0::/docker/{CONTAINER}\n",
        {
            f"memory/docker/{CONTAINER}/memory.max_usage_in_bytes": f"{64 * 2**20}\n",
            f"cpuacct/docker/{CONTAINER}/cpuacct.usage": "1500000000\n",
        },
    )
    assert files.read() == InstanceUsage(memory_peak_mb=64.0, cpu_s=1.5)


def test_control_groups_v2(tmp_path):
    group = f"system.slice/docker-{CONTAINER}.scope"
    files = machine(
        tmp_path,
        f"0::/{group}\n",
        {
            f"{group}/memory.peak": f"{32 * 2**20}\n",
            f"{group}/memory.current": f"{8 * 2**20}\n",
            f"{group}/cpu.stat": "usage_usec 250000\nuser_usec 200000\n",
        },
    )
    assert files.read() == InstanceUsage(memory_peak_mb=32.0, cpu_s=0.25)
    (tmp_path / "cgroup" / group / "memory.peak").unlink()  # a kernel before 5.19
    assert files.read().memory_peak_mb == 8.0


def test_once_the_group_is_gone_nothing_is_measured(tmp_path):
    group = f"docker/{CONTAINER}"
    files = machine(tmp_path, f"0::/{group}\n", {f"{group}/cpu.stat": "usage_usec 1\n"})
    (tmp_path / "cgroup" / group / "cpu.stat").unlink()
    assert files.read() == InstanceUsage(memory_peak_mb=None, cpu_s=None)


def test_a_process_id_of_another_machine_is_not_taken_for_one_of_this(tmp_path):
    assert machine(tmp_path, "0::/user.slice/somebody\n", {"x": ""}) is None
    assert cgroup_files(43, CONTAINER, mount=tmp_path, proc=tmp_path / "proc") is None


def test_what_the_engine_measures_is_read_for_both_versions_of_control_groups():
    v1 = {
        "memory_stats": {"usage": 1 * 2**20, "max_usage": 5 * 2**20},
        "cpu_stats": {"cpu_usage": {"total_usage": 2_000_000_000}},
    }
    assert usage_of_stats(v1) == InstanceUsage(memory_peak_mb=5.0, cpu_s=2.0)
    assert usage_of_stats({"memory_stats": {"usage": 3 * 2**20}}).memory_peak_mb == 3.0
    assert usage_of_stats({}) == InstanceUsage(memory_peak_mb=None, cpu_s=None)


def test_what_was_measured_never_becomes_less():
    first = InstanceUsage(memory_peak_mb=5.0, cpu_s=None)
    second = InstanceUsage(memory_peak_mb=3.0, cpu_s=1.0)
    assert larger(first, second) == InstanceUsage(memory_peak_mb=5.0, cpu_s=1.0)
