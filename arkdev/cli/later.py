"""Command words of the contract whose behaviour is not built yet: they say so."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from arkdev.errors import ComesLaterError

_REMOTE = "remote job management"
_LATER = {
    "login": (_REMOTE, ""),
    "create cm": (_REMOTE, ""),
    "create um": (_REMOTE, ""),
    "create qm": (_REMOTE, ""),
    "get cm": (_REMOTE, ""),
    "list cm": (_REMOTE, ""),
    "list qm": (_REMOTE, ""),
    "list resource_group": (_REMOTE, ""),
    "pull": (_REMOTE, ""),
    "upgrade": (_REMOTE, "upgrade arkdev with the tool that installed it"),
}
"""Words of a command → what it comes with, and what to do meanwhile."""


_WHOLE_SENTENCE = 1_000
"""Characters; click cuts what is longer than a line."""


class LaterGroup(TyperGroup):
    """A group of commands that knows which words come later, and lists whole sentences."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands, each with its whole first sentence: a long one goes on below."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(limit=_WHOLE_SENTENCE))
            for name, command in found
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises `ComesLaterError` for such a word."""
        word = args[0] if args else ""
        typed = f"{ctx.command_path} {word}"
        words = typed.partition(" ")[2]
        if words in _LATER and word not in self.commands:
            what, hint = _LATER[words]
            raise ComesLaterError(f"`{typed}` is not built yet: it comes with {what}", hint=hint)
        return super().resolve_command(ctx, args)
