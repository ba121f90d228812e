"""What an attempt's calls sent beside what its trajectories end with.

A plugin may send a message and take it out again, ask on a branch that it gives up, or make a call
that is never answered. The policy's prompt held those messages all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arkdev.plugin.conversation import Conversation, canonical, clean_message
from arkdev.sessions.turns import Turn

Message = dict[str, Any]


@dataclass(frozen=True)
class SentBeside:
    """Of one attempt."""

    messages: tuple[Message, ...] = ()
    """Each once, the policy's own answers left out."""
    answers: tuple[Message, ...] = ()
    """What the policy answered beside its trajectories."""
    tools: tuple[Message, ...] = ()
    """The tools that calls offered, each once: their descriptions are in the prompt too."""


NOTHING = SentBeside()


def beside_of(
    turns: Sequence[Turn], failed: Iterable[Message], *, kept: Sequence[Conversation]
) -> SentBeside:
    """Compare the calls of an attempt, and the bodies of those that failed, with conversations."""
    bodies = [*(turn.call.body for turn in turns), *failed]
    found = sent_beside(
        [body.get("messages", ()) for body in bodies],
        [turn.answer["choices"][0]["message"] for turn in turns],
        kept=[conversation.plain_messages for conversation in kept],
    )
    return replace(found, tools=tuple(_offered(bodies)))


def _offered(bodies: Iterable[Mapping[str, Any]]) -> Iterator[Message]:
    seen: list[Any] = []
    for body in bodies:
        for tool in body.get("tools") or ():
            if tool not in seen:
                seen.append(tool)
                yield tool


def sent_beside(
    requests: Iterable[Sequence[Message]],
    answers: Iterable[Message],
    *,
    kept: Iterable[Sequence[Message]],
) -> SentBeside:
    """Compare the `requests` of all calls, and the `answers`, with the messages that are `kept`.

    Messages are equal by decision 9.
    """
    known = [message for messages in kept for message in messages]
    answered = _missing((clean_message(answer) for answer in answers), known)
    sent = (message for request in requests for message in request)
    return SentBeside(tuple(_missing(sent, [*known, *answered])), tuple(answered))


def _missing(messages: Iterable[Message], known: Sequence[Message]) -> list[Message]:
    """Return the messages that are not among the known ones, each once."""
    seen = {id(message) for message in known}
    forms = [canonical(message) for message in known]
    found: list[Message] = []
    for message in messages:
        if id(message) in seen:
            continue
        seen.add(id(message))
        form = canonical(message)
        if form not in forms:
            forms.append(form)
            found.append(message)
    return found
