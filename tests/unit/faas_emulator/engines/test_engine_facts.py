from arkdev.faas_emulator.engines.engine import facts_of

DOCKER = (
    {
        "NCPU": 8,
        "MemTotal": 16 * 2**30,
        "CgroupVersion": "2",
        "OperatingSystem": "Debian GNU/Linux 12 (bookworm)",
        "SecurityOptions": ["name=seccomp,profile=default"],
        "MemoryLimit": True,
        "SwapLimit": False,
        "CpuCfsQuota": True,
        "PidsLimit": True,
    },
    {
        "Version": "28.2.2",
        "ApiVersion": "1.50",
        "Arch": "amd64",
        "Components": [{"Name": "Engine"}, {"Name": "containerd"}],
    },
)
PODMAN = (
    {
        "NCPU": 4,
        "MemTotal": 8 * 2**30,
        "CgroupVersion": "2",
        "OperatingSystem": "fedora",
        "SecurityOptions": ["name=seccomp,profile=default", "name=rootless"],
        "CpuCfsQuota": False,
    },
    {
        "Version": "5.4.0",
        "ApiVersion": "1.41",
        "Arch": "arm64",
        "Components": [{"Name": "Podman Engine"}, {"Name": "Conmon"}],
    },
)


def read(answers, platform="linux"):
    info, version = answers
    return facts_of(info, version, address="unix:///s", platform=platform)


def test_docker_is_read_with_what_it_can_limit():
    facts = read(DOCKER)
    assert (facts.name, facts.num_cpus, facts.memory_mb) == ("Docker", 8, 16_384)
    assert (facts.limits_cpu, facts.limits_memory, facts.limits_swap) == (True, True, False)
    assert not (facts.is_podman or facts.is_rootless or facts.is_virtual)
    assert str(facts) == "Docker 28.2.2 at unix:///s"


def test_rootless_podman_is_told_by_its_components_and_options():
    facts = read(PODMAN)
    assert facts.is_podman
    assert facts.is_rootless
    assert not facts.limits_cpu
    assert facts.cgroup_version == 2
    assert str(facts) == "Podman 5.4.0, rootless at unix:///s"


def test_docker_desktop_and_every_engine_on_macos_are_virtual_machines():
    info, version = DOCKER
    assert read(({**info, "OperatingSystem": "Docker Desktop"}, version)).is_virtual
    assert read(DOCKER, platform="darwin").is_virtual
