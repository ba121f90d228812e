"""Every check, in the order in which they are sent."""

from __future__ import annotations

from collections.abc import Callable

from arkdev.endpoints.capability_check.chat_checks import (
    check_chat,
    check_streaming,
    check_structured_output,
)
from arkdev.endpoints.capability_check.records import Check
from arkdev.endpoints.capability_check.responses_checks import check_responses
from arkdev.endpoints.capability_check.token_checks import check_tokens
from arkdev.endpoints.capability_check.tool_checks import check_tool_calls, check_tool_results

CHECKS: tuple[tuple[str, Callable[[str], Check]], ...] = (
    ("a chat call", check_chat),
    ("the Responses API", check_responses),  # second: a server may have this one only
    ("tool calls", check_tool_calls),
    ("a tool result", check_tool_results),
    ("a streamed chat call", check_streaming),
    ("structured output", check_structured_output),
    ("logprobs and token ids", check_tokens),
)
"""(what is asked for, the check of a model's name). At most 12 requests; 10 where all goes well."""
