"""Token evidence of a trajectory, from what the sampling server returned (decision 8).

Each answer may carry ``prompt_token_ids`` (at the top) and ``token_ids`` with logprobs (in its
choice), as vLLM returns them. Nothing is ever re-tokenised: where a later prompt differs from the
tokens so far, the longest common prefix is kept and the rest is taken from the prompt with weight
0 (decision 9).

Two calls, of which the second prompt repeats the first prompt and answer and adds a tool result::

    call 1: prompt [5, 6]           sampled [7, 8] with logprobs [-0.1, -0.2]
    call 2: prompt [5, 6, 7, 8, 9]  sampled [4]    with logprobs [-0.3]

    token_ids   [5, 6,    7,    8, 9,    4]
    loss_weight [0, 0,    1,    1, 0,    1]
    logprobs    [0, 0, -0.1, -0.2, 0, -0.3]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TokenEvidence:
    """Three lists of one length, from the sample's first token to the last answer's last."""

    token_ids: tuple[int, ...]
    loss_weight: tuple[float, ...]
    logprobs: tuple[float, ...]

    @property
    def num_trainable(self) -> int:
        """Tokens with a weight: 0 means that there is nothing to train on (field case 1.4)."""
        return sum(map(bool, self.loss_weight))


class TokenRecordBuilder:
    """Joins the evidence of the calls of one conversation."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._weights: list[float] = []
        self._logprobs: list[float] = []
        self._num_calls = 0
        self._is_complete = True
        self.missing_reason: str | None = None

    @classmethod
    def of(
        cls, lists: list[list[Any]] | None, *, num_calls: int, problem: str | None
    ) -> TokenRecordBuilder:
        """Return the builder of `num_calls` calls with these token ids, weights and logprobs."""
        builder = cls()
        builder._num_calls = num_calls
        builder._is_complete = lists is not None
        builder._ids, builder._weights, builder._logprobs = lists or ([], [], [])
        builder.missing_reason = problem
        return builder

    def built(self) -> TokenEvidence | None:
        """Return the joined evidence, or None when a call lacked it or none was made."""
        if not self._is_complete or not self._num_calls:
            return None
        return TokenEvidence(tuple(self._ids), tuple(self._weights), tuple(self._logprobs))

    def add_call(self, answer: dict[str, Any]) -> None:
        """Join one answer's evidence."""
        self._num_calls += 1
        choice = answer["choices"][0]
        prompt, sampled = answer.get("prompt_token_ids"), choice.get("token_ids")
        logprobs = _sampled_logprobs(choice)
        if prompt is None or sampled is None or logprobs is None:
            self._is_complete = False
            if sampled is not None or logprobs:
                self.missing_reason = _what_is_missing(self._num_calls, prompt, sampled, logprobs)
            return
        reported = (answer.get("usage") or {}).get("completion_tokens")
        if len(logprobs) != len(sampled) or reported not in (None, len(sampled)):
            self._is_complete = False
            self.missing_reason = (
                f"call {self._num_calls}: the endpoint reported {reported} completion tokens and "
                f"gave {len(sampled)} token ids with {len(logprobs)} logprobs"
            )
            return
        self._take_prompt(prompt)
        self._ids += sampled
        self._weights += [1.0] * len(sampled)
        self._logprobs += logprobs

    def _take_prompt(self, prompt: list[int]) -> None:
        kept = 0
        for old, new in zip(self._ids, prompt, strict=False):
            if old != new:
                break
            kept += 1
        del self._ids[kept:], self._weights[kept:], self._logprobs[kept:]
        rest = prompt[kept:]
        self._ids += rest
        self._weights += [0.0] * len(rest)
        self._logprobs += [0.0] * len(rest)


def _what_is_missing(call: int, prompt: Any, sampled: Any, logprobs: Any) -> str:
    """Say what came without what. A token's text does not tell its id (field case 1.6)."""
    parts = {"prompt_token_ids": prompt, "token_ids": sampled, "logprobs": logprobs}
    came = " and ".join(name for name, value in parts.items() if value is not None)
    missing = " and ".join(name for name, value in parts.items() if value is None)
    return f"call {call}: the endpoint gave {came} without {missing}; nothing is put in its place"


def _sampled_logprobs(choice: dict[str, Any]) -> list[float] | None:
    content = (choice.get("logprobs") or {}).get("content")
    return None if content is None else [float(token["logprob"]) for token in content]
