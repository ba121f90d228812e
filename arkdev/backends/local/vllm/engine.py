"""`GenerationEngine` over a vLLM server that is ours.

::

    engine = await start_vllm(VllmSettings(folder), log=run / "vllm.log", tell=print)
    answer = await engine.generate(request)
    await engine.update_weights(new_folder, version=1)
    await engine.close()
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from arkdev.backends.local.engine import (
    EngineCapabilities,
    Generation,
    GenerationRequest,
    OnToken,
)
from arkdev.backends.local.vllm.completions import (
    Sampled,
    event_in,
    generation_body,
    score_of,
    scoring_bodies,
)
from arkdev.backends.local.vllm.installation import find_vllm
from arkdev.backends.local.vllm.io_thread import Gate, IoThread
from arkdev.backends.local.vllm.process import VllmProcess
from arkdev.backends.local.vllm.saved_weights import SavedWeights, vocabulary_size, weights_in
from arkdev.backends.local.vllm.settings import (
    BASE_MODEL,
    IDLE_CONNECTION_S,
    SOCKET,
    VllmSettings,
    command_of,
    environment_of,
)
from arkdev.errors import ConfigurationError, PolicyEngineError

_ENDS_WITHIN_S = 5.0
"""A server whose engine has died ends soon after it has answered so."""
_FORGETS_WITHIN_S, _FORGETS_EVERY_S = 20.0, 0.02
_READ_BYTES = 2**20
_SCORED_TOGETHER = 64
_READY_EVERY_S, _TELL_EVERY_S = 0.5, 5.0


async def start_vllm(
    settings: VllmSettings,
    *,
    log: Path,
    tell: Callable[[str], None],
    start_limit_s: float,
    python: Path | None = None,
) -> VllmEngine:
    """Start a server and return its engine once it answers.

    `tell` hears every few seconds how far it has come. Raises what `find_vllm` raises, and
    `PolicyEngineError` with what it printed when it ends or does not answer within `start_limit_s`.
    """
    installation = await asyncio.to_thread(find_vllm, python)
    num_tokens = await asyncio.to_thread(vocabulary_size, settings.model)
    process = VllmProcess(log)
    command = command_of(settings, installation=installation, folder=process.folder)
    environment = environment_of(settings, installation=installation, folder=process.folder)
    engine = VllmEngine(
        process,
        lora_rank=settings.lora_rank,
        has_gpu_build=installation.has_gpu_build,
        vocabulary_size=num_tokens,
    )
    try:
        await asyncio.to_thread(process.start, command, environment=environment)
        await engine.wait_until_ready(start_limit_s, tell=tell)
    except BaseException:
        await engine.close()
        raise
    return engine


class VllmEngine:
    """Implements `GenerationEngine`; `start_vllm` makes it.

    `update_weights` takes a folder with safetensors files. With an ``adapter_config.json`` beside
    them they are a LoRA adapter, which is loaded over the model.

    Answers are repeatable with a seed only as far as arithmetic is: it depends on what else is in a
    batch. `sleep` gives the GPU's memory back; without a GPU vLLM has nothing to give. Asleep,
    `generate`, `score` and `update_weights` raise `PolicyEngineError`.
    """

    name = "vllm"

    def __init__(
        self,
        process: VllmProcess,
        *,
        lora_rank: int,
        has_gpu_build: bool,
        vocabulary_size: int,
    ) -> None:
        self.policy_version = 0
        self.capabilities = EngineCapabilities(is_deterministic=False, max_context_tokens=0)
        self._process = process
        self._lora_rank = lora_rank
        self._vocabulary_size = vocabulary_size
        self._has_gpu_build = has_gpu_build
        self._model = BASE_MODEL
        self._is_asleep = False
        self._is_closed = False
        self._io = IoThread("arkdev-vllm")
        self._gate = Gate()
        self._session: aiohttp.ClientSession | None = None

    @property
    def weights_folder(self) -> Path:
        """A place for weights to load, removed with the server, also when arkdev is killed."""
        return self._process.folder / "weights"

    async def wait_until_ready(self, limit_s: float, *, tell: Callable[[str], None]) -> None:
        """Wait for the server's first answer. Raises `PolicyEngineError`."""
        await self._io.call(self._open())
        loop = asyncio.get_running_loop()
        start = told = loop.time()
        while not await self._io.call(self._is_ready()):
            if self._process.has_ended.is_set():
                raise self._process.fault("vLLM did not start")
            if loop.time() - start > limit_s:
                raise self._process.fault(f"vLLM does not answer after {limit_s:g} s")
            if loop.time() - told >= _TELL_EVERY_S:
                told = loop.time()
                tell(f"vLLM starts, {told - start:.0f} s: {self._process.last_line}")
            await asyncio.sleep(_READY_EVERY_S)

    async def _open(self) -> None:
        connector = aiohttp.UnixConnector(
            str(self._process.folder / SOCKET), limit=0, keepalive_timeout=IDLE_CONNECTION_S
        )
        self._session = aiohttp.ClientSession(
            "http://vllm",
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None),  # an attempt has its own time limit
            read_bufsize=_READ_BYTES,
        )

    async def _is_ready(self) -> bool:
        """Whether it serves; notes how long its context is."""
        assert self._session is not None
        try:
            async with self._session.get("/v1/models") as response:
                body = await response.json()
        except (aiohttp.ClientError, ValueError):
            return False
        longest = body["data"][0]["max_model_len"]
        self.capabilities = EngineCapabilities(is_deterministic=False, max_context_tokens=longest)
        return True

    async def generate(
        self, request: GenerationRequest, *, on_token: OnToken | None = None
    ) -> Generation:
        """See `GenerationEngine`. The end of the context ends an answer, by ``length``."""
        longest = self.capabilities.max_context_tokens
        self._check(request.prompt_token_ids, room=longest - 1)
        limit = min(request.sampling.max_new_tokens, longest - len(request.prompt_token_ids))
        return await self._io.call(self._generate(request, limit, on_token))

    def _check(self, token_ids: Sequence[int], *, room: int) -> None:
        if not token_ids:
            raise ConfigurationError("there are no tokens to go on from: the prompt is empty")
        if len(token_ids) > room:
            raise ConfigurationError(
                f"{len(token_ids):,} tokens do not fit: the model's context of "
                f"{self.capabilities.max_context_tokens:,} leaves room for {room:,}",
                hint="shorten the conversation, or give the engine a longer context",
            )
        if min(token_ids) < 0 or max(token_ids) >= self._vocabulary_size:
            raise ConfigurationError(
                f"the model has {self._vocabulary_size:,} tokens; {min(token_ids)} to "
                f"{max(token_ids)} were given",
                hint="the tokenizer is not the model's",
            )

    async def _generate(
        self, request: GenerationRequest, limit: int, on_token: OnToken | None
    ) -> Generation:
        async with self._gate.together():
            self._check_awake()
            body = generation_body(request, limit=limit, model=self._model)
            sampled = Sampled(request.sampling.num_top_logprobs)
            if on_token is None:
                answer = await self._post("/v1/completions", body)
                sampled.add(answer["choices"][0])
            else:
                await self._stream(body, sampled, on_token)
            return sampled.finished(policy_version=self.policy_version)

    async def _stream(self, body: dict[str, Any], sampled: Sampled, on_token: OnToken) -> None:
        """Tell `on_token` of each token; leaving the stream ends the sampling."""
        async with self._answer("/v1/completions", {**body, "stream": True}) as response:
            async for line in response.content:
                event = event_in(line) or {}
                if "error" in event:
                    raise await self._fault(f"vLLM failed: {event['error']}")
                for choice in event.get("choices", ()):
                    num_told = len(sampled.token_ids)
                    for token_id in sampled.add(choice):
                        num_told += 1
                        if not on_token(token_id):
                            sampled.stop_after(num_told)
                            return

    async def score(self, token_ids: Sequence[int], *, temperature: float = 1.0) -> list[float]:
        """Return the logprob of each token but the first; see `GenerationEngine`.

        At temperature 1 it is one request, at another one for each token.
        """
        self._check(token_ids, room=self.capabilities.max_context_tokens)
        if len(token_ids) < 2:
            return []
        return await self._io.call(self._score(token_ids, temperature or 1.0))

    async def _score(self, token_ids: Sequence[int], temperature: float) -> list[float]:
        async with self._gate.together():
            self._check_awake()
            bodies = scoring_bodies(token_ids, temperature=temperature, model=self._model)
            few = asyncio.Semaphore(_SCORED_TOGETHER)
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._scored(body, few)) for body in bodies]
            except* (ConfigurationError, PolicyEngineError) as faults:
                raise faults.exceptions[0] from None
            return score_of(token_ids, [task.result() for task in tasks])

    async def _scored(self, body: dict[str, Any], few: asyncio.Semaphore) -> dict[str, Any]:
        async with few:
            return await self._post("/v1/completions", body)

    async def update_weights(self, source: Path, *, version: int) -> None:
        """Sample with the weights in the folder `source`; see `GenerationEngine`."""
        weights = await asyncio.to_thread(weights_in, source)
        await self._io.call(self._load(weights, version))

    async def _load(self, weights: SavedWeights, version: int) -> None:
        async with self._gate.alone():
            self._check_awake()
            if weights.is_adapter:
                await self._load_adapter(weights.folder, version)
            else:
                kwargs = {"weights_path": str(weights.folder)}
                await self._post("/collective_rpc", {"method": "reload_policy", "kwargs": kwargs})
                await self._sample_with(BASE_MODEL)
            await self._forget_prefixes()
            self.policy_version = version

    async def _load_adapter(self, folder: Path, version: int) -> None:
        """Load it under a name of its own, which keeps its cached prefixes apart."""
        if not self._lora_rank:
            raise ConfigurationError(
                f"{folder} holds a LoRA adapter, and vLLM was started without",
                hint="start it with the adapter's rank (VllmSettings.lora_rank)",
            )
        name = f"{BASE_MODEL}-{version}"
        await self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        await self._sample_with(name)

    async def _sample_with(self, name: str) -> None:
        old, self._model = self._model, name
        if old not in (BASE_MODEL, name):
            await self._post("/v1/unload_lora_adapter", {"lora_name": old})

    async def _forget_prefixes(self) -> None:
        """vLLM refuses as long as it ends an answer that was cancelled."""
        deadline = asyncio.get_running_loop().time() + _FORGETS_WITHIN_S
        while not (await self._post("/reset_prefix_cache", None)).get("success"):
            if asyncio.get_running_loop().time() > deadline:
                raise await self._fault("vLLM keeps cached prefixes of the old weights")
            await asyncio.sleep(_FORGETS_EVERY_S)

    async def sleep(self) -> None:
        """Give the GPU's memory back; requests under way are finished first. Idempotent."""
        await self._io.call(self._set_asleep(True))

    async def wake(self) -> None:
        """Be ready again, with the weights as they were. Idempotent."""
        await self._io.call(self._set_asleep(False))

    async def _set_asleep(self, is_asleep: bool) -> None:
        async with self._gate.alone():
            if self._has_gpu_build and self._is_asleep != is_asleep:
                await self._post("/sleep?level=1" if is_asleep else "/wake_up", None)
            self._is_asleep = is_asleep

    def _check_awake(self) -> None:
        if self._is_asleep:
            raise PolicyEngineError("vLLM is asleep", hint="wake() comes first")

    async def _post(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        async with self._answer(path, body) as response:
            return _as_object(await response.text())

    @asynccontextmanager
    async def _answer(
        self, path: str, body: Mapping[str, Any] | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Post and give the answer. Raises `ConfigurationError` for what vLLM refuses, and
        `PolicyEngineError` when it fails or ends, also later, while the answer is read."""
        assert self._session is not None
        try:
            async with self._session.post(path, json=body) as response:
                if response.status >= 400:
                    said = _said_in(await response.text())
                    if response.status < 500:
                        raise ConfigurationError(f"vLLM refuses a request: {said}")
                    raise await self._fault(f"vLLM answers with status {response.status}: {said}")
                yield response
        except aiohttp.ClientError as error:
            raise await self._fault(f"vLLM breaks off {path} ({type(error).__name__})") from error

    async def _fault(self, what: str) -> PolicyEngineError:
        """Wait for the end that may have caused it, so that the error can tell of it."""
        await asyncio.to_thread(self._process.has_ended.wait, _ENDS_WITHIN_S)
        return self._process.fault(what)

    async def close(self) -> None:
        """End the server and all that it started. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._session is not None:
            await self._io.call(self._session.close())
        await asyncio.to_thread(self._process.end)
        await self._io.close()


def _as_object(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:  # some of its paths answer with words, or with nothing
        return {}
    return body if isinstance(body, dict) else {}


def _said_in(text: str) -> str:
    error = _as_object(text).get("error")
    return str(error.get("message")) if isinstance(error, dict) else text.strip()[:500]
