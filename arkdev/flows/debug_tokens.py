"""What a debug run knows of tokens, exactly or with a local tokenizer, and what it cannot check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arkdev.flows.debug_plan import DebugPlan
from arkdev.harness.contexts import InsertedContext
from arkdev.harness.rollouts import FinishedRollout, SampleToRun
from arkdev.harness.steps import Counted
from arkdev.harness.token_counts import CountedBy, texts_count, token_counts
from arkdev.job.local_tokenizer import TEMPLATE_TOKENS
from arkdev.job.prompts import prompt_texts
from arkdev.runs.records import GraderRecord, GroupRecord

_FAR = 0.2
"""Counts of texts may differ so much from the real ones, a chat template aside."""


@dataclass(frozen=True)
class _Length:
    """Of a trajectory without token ids."""

    num_tokens: int | None
    """Of its texts, by the local tokenizer; None without one."""
    num_messages: int

    def is_far_from(self, number: int) -> bool:
        """Whether a trajectory of these texts cannot well have so many tokens."""
        if self.num_tokens is None:
            return False
        most = self.num_tokens * (1 + _FAR) + TEMPLATE_TOKENS * (self.num_messages + 1)
        return not self.num_tokens * (1 - _FAR) <= number <= most


class TokenChecks:
    """Looks at what begins and ends; `warn` takes a text and an example."""

    def __init__(self, plan: DebugPlan, warn: Callable[[str, str], None]) -> None:
        self._tokenizer = plan.tokenizer
        self._warn = warn
        self._lengths: dict[str, _Length] = {}
        """Of trajectories without token ids whose group is under way."""

    def begin(self, sample: SampleToRun) -> None:
        """Compare a prompt with the most tokens that the model's folder names."""
        tokenizer = self._tokenizer
        if tokenizer is None or tokenizer.max_tokens is None:
            return
        line = sample.fresh().model_dump(exclude_none=True)
        num_tokens = sum(tokenizer.count(text) for text in prompt_texts(line))
        most = sample.sampling.get("max_new_tokens") or 0
        limit = f"the {tokenizer.max_tokens:,} tokens of the tokenizer's model_max_length"
        example = f"sample {sample.index}: about {num_tokens:,}"
        if num_tokens > tokenizer.max_tokens:
            self._warn(f"prompts are longer than {limit}", example)
        elif num_tokens + most > tokenizer.max_tokens:
            self._warn(f"prompt and max_new_tokens {most:,} together exceed {limit}", example)

    def counted(self, finished: FinishedRollout) -> Counted:
        """Return what is known of a trajectory's tokens."""
        record, evidence = finished.record, finished.evidence
        count = self._tokenizer.count if self._tokenizer and evidence is None else None
        weights = evidence.loss_weight if evidence is not None else None
        counts = token_counts(record, loss_weight=weights, count=count)
        if evidence is None:
            local = counts.get(CountedBy.TOKENIZER)
            length = _Length(local.num_tokens if local else None, len(record.messages))
            self._lengths[record.trajectory_id] = length
        return Counted(counts, weights)

    def inserted(self, context: InsertedContext) -> int:
        """Return how many tokens a context adds: counted where there is a tokenizer."""
        if self._tokenizer is None:
            return context.estimated_tokens
        return texts_count([message for _, message in context.entries], count=self._tokenizer.count)

    def end(self, group: GroupRecord) -> None:
        """Look at advantages of tokens, of which nobody knows how many there should be."""
        lengths = [self._lengths.pop(name, None) for name in group.trajectory_ids]
        for grader in group.graders:
            if grader.tok_advantages is not None and any(lengths):
                self._check_number(group, grader, lengths)

    def _check_number(
        self, group: GroupRecord, grader: GraderRecord, lengths: list[_Length | None]
    ) -> None:
        first = group.trajectory_ids[0]
        is_list = "that there is a list for each trajectory, of finite numbers, was"
        if self._tokenizer is None:
            self._warn(
                "tok_advantages without token ids: that there is one for each token was not "
                f"checked; {is_list} (--tokenizer compares their number with a local count)",
                first,
            )
            return
        self._warn(
            "tok_advantages without token ids: that there is one for each token was checked "
            "approximately, against a local tokenizer's count of the texts, without the chat "
            f"template; {is_list} checked exactly",
            first,
        )
        for name, length, given in zip(
            group.trajectory_ids, lengths, grader.tok_advantages or (), strict=True
        ):
            if length is not None and given is not None and length.is_far_from(len(given)):
                self._warn(
                    f"tok_advantages of {grader.name}: their number is far from the tokens that a "
                    "local tokenizer counts in the trajectory",
                    f"{name}: {len(given):,} for about {length.num_tokens:,}",
                )
