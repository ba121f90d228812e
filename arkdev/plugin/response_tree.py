"""The responses of one attempt as a tree, by `previous_response_id` (SURFACE GROUP-13..17).

The history is kept here, not by the endpoint, so that servers without a store can branch too. Two
continuations of one response share what led to it and know nothing of each other::

    r1 ─┬─ r2 ── r3        r3's trajectory: what r1, r2 and r3 saw and answered
        └─ r4              r4's trajectory: what r1 and r4 saw and answered
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from arkdev.errors import PluginError
from arkdev.plugin.conversation import Conversation, clean_message
from arkdev.plugin.source import callers_place


@dataclass(frozen=True, eq=False)
class ResponseNode:
    """One response, or messages that the plugin put in itself.

    `history` is what the model saw (without its answer); `answer` its Chat Completions JSON, None
    where the plugin put messages in. `key` is the place in the tree: for each call on the path
    a digest of what it asked beyond its history, and how often that had been asked there before.
    """

    id: str
    parent: ResponseNode | None
    key: tuple[str, ...]
    history: tuple[dict[str, Any], ...] = ()
    answer: dict[str, Any] | None = None
    num_instructions: int = 0
    """Messages at the head of `history` that came from `instructions`."""
    asked: Counter[str] = field(default_factory=Counter, repr=False)
    """How often each question was asked after it."""

    @property
    def messages(self) -> tuple[dict[str, Any], ...]:
        """What a continuation begins with: the history and the answer.

        Not the instructions: the Responses API carries them over to no later call.
        """
        history = self.history[self.num_instructions :]
        if self.answer is None:
            return history
        return (*history, clean_message(self.answer["choices"][0]["message"]))

    def answer_index(self, end: ResponseNode) -> int:
        """Return where this answer stands in the messages of the trajectory that ends at `end`."""
        return len(self.history) - self.num_instructions + end.num_instructions

    @property
    def path(self) -> list[ResponseNode]:
        """The nodes from the first call to this one."""
        nodes, node = [], self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class ResponseTree:
    """The responses of one attempt; safe to use from any thread."""

    def __init__(self, owner: str = "") -> None:
        """`owner` tells the attempt from all others, so that its ids are its own."""
        self._owner = owner
        self._root = ResponseNode(id="", parent=None, key=())
        self._nodes: dict[str, ResponseNode] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, response_id: str | None) -> ResponseNode:
        """Return the node of an id; None is the root.

        Raises `PluginError` for an id that is not of this attempt, without asking any server.
        """
        if response_id is None:
            return self._root
        with self._lock:
            node = self._nodes.get(response_id)
            known = list(self._nodes)
        if node is None:
            raise PluginError(
                f"there is no response {response_id!r} in this rollout",
                where=callers_place(),
                hint=f"its responses are {', '.join(known[-5:])}" if known else "it has none yet",
            )
        return node

    def next_key(
        self, parent: ResponseNode, *, body: dict[str, Any], num_instructions: int = 0
    ) -> tuple[str, ...]:
        """Return the place of a continuation of `parent` that is about to be asked for.

        `body` is its Chat Completions request. The key depends on what is asked, not on when:
        branches that run side by side get the same keys, and so the same seeds, in every run. Of
        equal questions the first asked is the first.
        """
        messages = body["messages"]
        new = messages[:num_instructions] + messages[num_instructions + len(parent.messages) :]
        text = json.dumps({**body, "messages": new}, sort_keys=True, default=str)
        digest = blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()
        with self._lock:
            number = parent.asked[digest]
            parent.asked[digest] += 1
        return (*parent.key, f"{digest}.{number}")

    def add(
        self,
        parent: ResponseNode,
        *,
        key: tuple[str, ...],
        history: list[dict[str, Any]],
        answer: dict[str, Any] | None,
        response_id: str | None = None,
        num_instructions: int = 0,
    ) -> ResponseNode:
        """Put a response under `parent`; its id is `response_id` or a new one."""
        node = ResponseNode(
            id=response_id or self._id_of(key),
            parent=parent,
            key=key,
            history=tuple(history),
            answer=answer,
            num_instructions=num_instructions,
        )
        with self._lock:
            self._nodes[node.id] = node
        return node

    def _id_of(self, key: tuple[str, ...]) -> str:
        """Return the id of a place in the tree: the same in every run, as the seeds are."""
        text = repr((self._owner, key)).encode("utf-8", "backslashreplace")
        return f"resp_{blake2b(text, digest_size=12).hexdigest()}"

    def insert(self, messages: list[dict[str, Any]], *, previous_response_id: str | None) -> str:
        """Put messages made outside under a response; they are not trained on (PROXY-12)."""
        parent = self.node(previous_response_id)
        history = [*parent.messages, *messages]
        key = self.next_key(parent, body={"messages": history})
        return self.add(parent, key=key, history=history, answer=None).id

    def conversation(self, response_id: str) -> Conversation:
        """Return the path from the first call to `response_id` as one conversation (Y-38)."""
        conversation = Conversation()
        for node in self.node(response_id).path:
            if node.answer is None:
                conversation.set_history(list(node.history))
            else:
                conversation.add_call(list(node.history), node.answer)
        return conversation
