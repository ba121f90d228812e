"""A model that writes a word for a token: `Rendering` without a tokenizer."""

from __future__ import annotations

from arkdev.backends.local.rendering import ParsedAnswer
from arkdev.backends.local.template_messages import template_messages

END, GLUE, ASK = "<end>", "<glue>", "<assistant>"


class ToyRendering:
    """Writes ``<role> text... <end> <glue>``; words become ids as they come up.

    Text is split into words, so that an answer that was sampled in other pieces ("he", "llo") is
    written differently when it is rendered. With `drops_notes` it leaves out what is in brackets in
    answers before the last question, as templates do with reasoning.
    """

    name = "toy"
    has_thinking_switch = False

    def __init__(self, *, drops_notes=False):
        self._words = [END, GLUE, ASK]
        self.drops_notes = drops_notes
        self.stop_token_ids = frozenset({0})
        self.num_extends = 0

    def ids(self, text):
        for word in text.split():
            if word not in self._words:
                self._words.append(word)
        return [self._words.index(word) for word in text.split()]

    def decode(self, token_ids):
        return " ".join(self._words[token] for token in token_ids)

    def _written(self, messages, num_messages):
        messages = template_messages(messages)
        roles = [message["role"] for message in messages]
        last = max((i for i, role in enumerate(roles) if role == "user"), default=-1)
        parts = []
        for index, message in enumerate(messages[:num_messages]):
            words = message["content"].split()
            if self.drops_notes and message["role"] == "assistant" and index < last:
                words = [word for word in words if not word.startswith("(")]
            parts += [f"<{message['role']}>", *words, END, GLUE]
        return " ".join(parts)

    def render(self, messages, *, tools=None, thinking=None):
        head = " ".join(tool["function"]["name"] for tool in tools or ())
        return self.ids(f"{head} {self._written(messages, len(messages))} {ASK}")

    def extend(self, messages, *, after, tools=None, thinking=None):
        self.num_extends += 1
        known = messages[: after.num_messages]
        now = self._written(messages, after.num_messages)
        if self._written(known, after.num_messages) != now:
            return None
        rest = self.ids(f"{self._written(messages, len(messages))} {ASK}")[len(self.ids(now)) - 1 :]
        return rest if after.token_ids[-1] == 0 else [0, *rest]

    def answer_ids(self, messages, *, tools=None, thinking=None):
        return self.ids(f"{messages[-1]['content']} {END}")

    def parse(self, token_ids, *, prompt_token_ids=()):
        return ParsedAnswer(self.decode([token for token in token_ids if token]))
