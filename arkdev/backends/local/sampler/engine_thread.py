"""The loop: admit what waits, prefill it, decode one token for each row, let go of what has ended.

It runs in a thread of its own and owns model, cache and slots; others speak to it through `submit`
alone. Work is taken in the order in which it came. What changes the engine (new weights, sleep)
stands in the same line: what came before it is finished first, what comes after it waits.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import torch

from arkdev.backends.local.sampler.distribution import Rows, sample
from arkdev.backends.local.sampler.kv_cache import KeyValueCache
from arkdev.backends.local.sampler.model_forward import (
    Forward,
    decode,
    prefill,
    prefill_all_logits,
    prefill_chunks,
)
from arkdev.backends.local.sampler.rows import Row, Scoring
from arkdev.backends.local.sampler.slots import Slots
from arkdev.errors import PolicyEngineError


@dataclass
class Change:
    """Something to do with the engine while no request runs."""

    work: Callable[[], None]
    future: Future[None]


Work = Row | Scoring | Change


@dataclass
class Progress:
    """What the engine has done so far."""

    num_prefilled_tokens: int = 0
    num_reused_tokens: int = 0
    """Of prompts: found again, not computed."""
    num_decode_steps: int = 0
    num_sampled_tokens: int = 0


class EngineThread:
    """The thread, and all that only it touches."""

    def __init__(
        self, forward: Forward, cache: KeyValueCache, slots: Slots, *, is_deterministic: bool
    ) -> None:
        self.forward, self.cache, self.slots = forward, cache, slots
        self.is_deterministic = is_deterministic
        self.policy_version = 0
        self.progress = Progress()
        self._inbox: SimpleQueue[Work | None] = SimpleQueue()
        self._waiting: deque[Work] = deque()
        self._rows: list[Row] = []
        self._is_poisoned = False
        """Whether keys or values in the cache may be no numbers."""
        self._parameters: Rows | None = None
        """Of the rows; None when others run since."""
        self._lock = threading.Lock()
        self._ended: PolicyEngineError | None = None
        """Why nothing is taken any more."""
        self._thread = threading.Thread(target=self._run, name="policy engine", daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> None:
        """Give it work. Raises `PolicyEngineError` when it has ended."""
        with self._lock:
            if self._ended is not None:
                raise self._ended
            self._inbox.put(work)

    def close(self) -> None:
        """End the thread, and wait for it. What waits fails."""
        self._end(PolicyEngineError("the policy engine was closed"))
        self._inbox.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _end(self, error: PolicyEngineError) -> None:
        with self._lock:
            self._ended = self._ended or error

    def forget(self, *, releases: bool) -> None:
        """Forget all prefixes; with `releases`, give the memory back. Only as a `Change`."""
        self.slots.forget()
        # what is masked is multiplied by 0, which makes no number of what is none
        if releases or self._is_poisoned:
            self.cache.release()
            self._is_poisoned = False

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while self._ended is None:
                    self._turn()
        except BaseException as error:  # noqa: BLE001 (whatever it was, nobody may wait for ever)
            died = PolicyEngineError(
                f"the policy engine has died: {type(error).__name__}: {error}",
                hint="Restart the command; a run resumes from its last checkpoint.",
            )
            died.__cause__ = error  # for `arkdev --debug`
            self._end(died)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Fail everything that is still waited for."""
        while True:
            try:
                work = self._inbox.get_nowait()
            except Empty:
                break
            if work is not None:
                self._waiting.append(work)
        for each in [*self._rows, *self._waiting]:
            if not each.future.done() and each.future.set_running_or_notify_cancel():
                each.future.set_exception(self._ended)
        self._rows.clear()
        self._waiting.clear()
        self.cache.release()

    def _turn(self) -> None:
        self._take_in()
        self._drop_cancelled()
        self._admit()
        if self._rows:
            self._decode()

    def _take_in(self) -> None:
        is_idle = not self._rows and not self._waiting
        while True:
            try:
                work = self._inbox.get(block=is_idle)
            except Empty:
                return
            if work is None:
                return
            is_idle = False
            self._waiting.append(work)

    def _drop_cancelled(self) -> None:
        cancelled = [row for row, each in enumerate(self._rows) if each.future.cancelled()]
        self._remove(cancelled)

    def _remove(self, ended: Iterable[int]) -> None:
        """Let go of rows; the last one takes the place of each."""
        for row in sorted(ended, reverse=True):
            self.slots.end(row)
            last = self._rows.pop()
            if row < len(self._rows):
                self._rows[row] = last
            self._parameters = None

    def _admit(self) -> None:
        """Start what waits, in its order, as far as there is room; sample its first tokens."""
        first = len(self._rows)
        logits: list[torch.Tensor] = []
        while self._waiting:
            work = self._waiting[0]
            if isinstance(work, Change):
                if self._rows:
                    break
                self._change(work)
            elif work.future.cancelled():
                pass
            elif not self.slots.has_room:
                break
            elif isinstance(work, Scoring):
                self._score(work)
            else:
                logits.append(self._prefill(work))
                self._rows.append(work)
            self._waiting.popleft()
        if logits:
            self._parameters = None
            parameters = self._parameters_of(self._rows[first:])
            self._sample(torch.stack(logits), parameters, first=first)

    def _change(self, change: Change) -> None:
        if not change.future.set_running_or_notify_cancel():
            return
        try:
            change.work()
        except Exception as error:  # noqa: BLE001 (refused by whoever asked for it; see `Forward.load`)
            change.future.set_exception(error)
        else:
            change.future.set_result(None)

    def _prefill(self, row: Row) -> torch.Tensor:
        self.cache.allocate()
        prompt = row.request.prompt_token_ids
        slot, num_reused, logits = self.slots.start(prompt)
        if logits is None:
            for chunk in prefill_chunks(num_reused, len(prompt), is_aligned=self.is_deterministic):
                logits = prefill(
                    self.forward,
                    self.cache,
                    slot,
                    token_ids=prompt,
                    chunk=chunk,
                    is_aligned=self.is_deterministic,
                )
            assert logits is not None
            logits = logits.clone()
            self.slots.computed(slot, num_tokens=len(prompt), next_logits=logits)
        row.num_reused = num_reused
        self.progress.num_reused_tokens += num_reused
        self.progress.num_prefilled_tokens += len(prompt) - num_reused
        row.start(vocabulary_size=self.forward.vocabulary_size, device=self.forward.device)
        return logits

    def _score(self, scoring: Scoring) -> None:
        self.cache.allocate()
        ids = scoring.token_ids
        slot, _, _ = self.slots.start(ids, reuse=False)
        logprobs: list[float] = []
        for chunk in prefill_chunks(0, len(ids), is_aligned=self.is_deterministic):
            logits = prefill_all_logits(
                self.forward,
                self.cache,
                slot,
                token_ids=ids,
                chunk=chunk,
                is_aligned=self.is_deterministic,
            )
            nexts = torch.tensor(ids[chunk[0] + 1 : chunk[1] + 1], device=logits.device)
            scaled = logits[: len(nexts)] / (scoring.temperature or 1.0)
            chosen = scaled.log_softmax(-1).gather(1, nexts[:, None])
            logprobs += chosen[:, 0].tolist()
        self.slots.computed(slot, num_tokens=len(ids), next_logits=None)
        self.slots.end(slot)
        self.progress.num_prefilled_tokens += len(ids)
        if scoring.future.set_running_or_notify_cancel():
            scoring.future.set_result(logprobs)

    def _decode(self) -> None:
        token_ids = [row.token_ids[-1] for row in self._rows]
        positions = [row.position for row in self._rows]
        if self._parameters is None:
            self._parameters = self._parameters_of(self._rows)
        logits = decode(
            self.forward,
            self.cache,
            token_ids=token_ids,
            positions=positions,
            own_lengths=self.is_deterministic,
        )
        self.slots.extend(token_ids, positions)
        self.progress.num_decode_steps += 1
        self._sample(logits, self._parameters, first=0)

    def _parameters_of(self, rows: list[Row]) -> Rows:
        return Rows(
            [row.request.sampling for row in rows],
            self.forward.device,
            [row.seen for row in rows],
        )

    def _sample(self, logits: torch.Tensor, parameters: Rows, *, first: int) -> None:
        """Sample a token for each row from `first` on; let go of those that have ended."""
        rows = self._rows[first:]
        sampled = sample(logits, parameters, uniforms=[row.next_uniform for row in rows])
        self._is_poisoned |= not all(map(math.isfinite, sampled.logprobs))
        tops = sampled.top_logprobs or [()] * len(rows)
        self.progress.num_sampled_tokens += len(rows)
        taken = zip(rows, sampled.token_ids, sampled.logprobs, tops, strict=True)
        ended = [
            first + index
            for index, (row, token_id, logprob, top) in enumerate(taken)
            if row.take(token_id, logprob, top, policy_version=self.policy_version)
        ]
        self._remove(ended)
