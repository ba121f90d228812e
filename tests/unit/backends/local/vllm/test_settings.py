"""vLLM's command line and environment."""

from __future__ import annotations

from pathlib import Path

from arkdev.backends.local.vllm.installation import VllmInstallation
from arkdev.backends.local.vllm.settings import (
    IDLE_CONNECTION_S,
    VllmSettings,
    command_of,
    environment_of,
)

CPU = VllmInstallation(Path("/env/bin/python"), "0.32.0", has_gpu_build=False)
GPU = VllmInstallation(Path("/env/bin/python"), "0.33.0", has_gpu_build=True)
FOLDER = Path("/private")


def command(settings: VllmSettings, installation: VllmInstallation) -> str:
    return " ".join(command_of(settings, installation=installation, folder=FOLDER))


def test_it_serves_where_only_we_can_enter() -> None:
    text = command(VllmSettings(Path("/model")), CPU)
    assert "--uds /private/vllm.sock" in text
    assert "--port" not in text


def test_logprobs_are_of_the_distribution_sampled_from() -> None:
    assert "--logprobs-mode processed_logprobs" in command(VllmSettings(Path("/model")), CPU)


def test_each_device_has_its_own_settings() -> None:
    cpu, gpu = (command(VllmSettings(Path("/model"), lora_rank=8), one) for one in (CPU, GPU))
    assert "--dtype float32" in cpu and "--enforce-eager" in cpu and "--enable-sleep" not in cpu
    assert "--dtype bfloat16" in gpu and "--enable-sleep-mode" in gpu
    assert "--max-lora-rank 8" in cpu
    assert "--no-enable-chunked-prefill" in cpu and "chunked" not in gpu


def test_variables_of_another_python_stay_out() -> None:
    inherited = {"PYTHONPATH": "/ours", "VIRTUAL_ENV": "/ours", "PATH": "/bin", "LANG": "C"}
    settings = VllmSettings(Path("/model"))
    environment = environment_of(settings, installation=CPU, folder=FOLDER, inherited=inherited)
    assert "VIRTUAL_ENV" not in environment
    assert [path.name for path in Path(environment["PYTHONPATH"]).glob("*.py")] == [
        "arkdev_policy_worker.py"
    ]
    assert environment["LANG"] == "C"
    assert environment["PATH"] == "/env/bin:/bin"
    assert environment["HF_HUB_OFFLINE"] == environment["VLLM_SERVER_DEV_MODE"] == "1"


def test_the_server_keeps_an_idle_connection_longer_than_we_do() -> None:
    environment = environment_of(VllmSettings(Path("/model")), installation=CPU, folder=FOLDER)
    assert int(environment["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]) > 2 * IDLE_CONNECTION_S
