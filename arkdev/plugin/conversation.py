"""One conversation: the context of the last model call of an attempt (ROLL-11).

A rollout returns one trajectory. It is what the last call saw, and that call's answer; messages of
earlier calls that a rewritten history left out are not part of it.
"""

from __future__ import annotations

from typing import Any

from arkdev.plugin.evidence import TokenEvidence, TokenRecordBuilder
from arkdev.types import ChatCompletionMessage, CompletionUsage

_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


class Conversation:
    """The messages, usage, finish reason and token evidence of a trajectory in the making.

    `usage` sums the calls of the attempt; a count is None (unknown) once a call lacked it.
    Messages are kept as plain dicts and become records when they are read.
    """

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []
        self._usage: dict[str, int | None] = dict.fromkeys(_COUNTS, 0)
        self._tokens = TokenRecordBuilder()
        self.finish_reason: str | None = None
        self.num_calls = 0
        self._last_order = -1
        self.was_rewritten = False

    @property
    def messages(self) -> list[ChatCompletionMessage]:
        """The conversation so far, as contract records."""
        return [ChatCompletionMessage(**message) for message in self._messages]

    @property
    def plain_messages(self) -> list[dict[str, Any]]:
        """The conversation so far, as JSON objects."""
        return list(self._messages)

    @property
    def usage(self) -> CompletionUsage | None:
        """Token counts of the calls so far; None before the first call."""
        return CompletionUsage(**self._usage) if self.num_calls else None

    @property
    def tokens(self) -> TokenEvidence | None:
        """Token ids, loss weights and logprobs of the trajectory; None when a call lacked them."""
        return self._tokens.built()

    @property
    def evidence_problem(self) -> str | None:
        """Why the token evidence that came is not complete; None when it is, or none came."""
        return self._tokens.missing_reason

    def state(self) -> dict[str, Any]:
        """Return it as JSON, for a proxy in another process."""
        tokens = self._tokens.built()
        return {
            "messages": list(self._messages),
            "usage": dict(self._usage),
            "finish_reason": self.finish_reason,
            "num_calls": self.num_calls,
            "was_rewritten": self.was_rewritten,
            "tokens": None
            if tokens is None
            else [tokens.token_ids, tokens.loss_weight, tokens.logprobs],
            "evidence_problem": self.evidence_problem,
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Conversation:
        """Return the conversation that `state` describes, as it was then."""
        conversation = cls()
        conversation._messages = state["messages"]
        conversation._usage = state["usage"]
        conversation.finish_reason = state["finish_reason"]
        conversation.num_calls = state["num_calls"]
        conversation.was_rewritten = state["was_rewritten"]
        conversation._tokens = TokenRecordBuilder.of(
            state["tokens"], num_calls=state["num_calls"], problem=state["evidence_problem"]
        )
        return conversation

    def set_history(self, messages: list[dict[str, Any]]) -> None:
        """Take `messages` as the whole history (PROXY-11). Equal prefixes are kept as they are."""
        if not continues(self._messages, messages):
            self.was_rewritten = True
        self._messages = list(messages)

    def add_call(
        self, messages: list[dict[str, Any]], answer: dict[str, Any], *, order: int | None = None
    ) -> None:
        """Record a call: the history that it saw and the Chat Completions JSON that came back.

        `order` numbers the calls as they were made. Where calls overlap, the one made last is the
        trajectory, whichever answer comes last; of the others only the usage counts.
        """
        self.num_calls += 1
        self._add_usage(answer.get("usage") or {})
        if order is not None and order < self._last_order:
            return
        self._last_order = order if order is not None else self._last_order
        self.set_history(messages)
        choice = answer["choices"][0]
        self._messages.append(clean_message(choice["message"]))
        self.finish_reason = choice.get("finish_reason")
        self._tokens.add_call(answer)

    def _add_usage(self, usage: dict[str, Any]) -> None:
        for name in _COUNTS:
            count, so_far = usage.get(name), self._usage[name]
            self._usage[name] = None if count is None or so_far is None else so_far + count


def continues(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    """Tell whether `after` begins with all of `before` (decision 9's equality)."""
    if len(after) < len(before):
        return False
    return all(
        old is new or old == new or canonical(old) == canonical(new)
        for old, new in zip(before, after, strict=False)
    )


def canonical(message: dict[str, Any]) -> dict[str, Any]:
    """Return the one form in which messages are compared (decision 9).

    A text is one text part; a key that is missing, null or empty is the same thing.
    """
    plain: dict[str, Any] = _without_empty(message)
    if isinstance(plain.get("content"), str):
        plain["content"] = [{"type": "text", "text": plain["content"]}]
    return plain


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_empty(v) for k, v in value.items() if v not in (None, "", [])}
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    return value


def clean_message(message: dict[str, Any]) -> dict[str, Any]:
    """Drop what says nothing (nulls, an empty reasoning) but keep `content`, null or not."""
    return {key: value for key, value in message.items() if key == "content" or _says(key, value)}


def _says(key: str, value: Any) -> bool:
    return value is not None and not (key == "reasoning_content" and not value)
