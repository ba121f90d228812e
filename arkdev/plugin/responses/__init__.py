"""Translation between the Responses API and Chat Completions, both ways (SURFACE GROUP-13..16).

Pure functions on plain JSON. A model that speaks one API serves callers of the other::

    Responses request --chat_body_of_responses--> Chat request --model-->
    Chat answer --response_of_answer--> Response

    Chat request --responses_body_of_chat--> Responses request --model-->
    Response --answer_of_response--> Chat answer

What one side cannot say to the other raises `TranslationError`, whose `param` is the place in the
request (``input[2].content[0]``). docs/responses.md lists what is translated and what is refused.
"""

from arkdev.plugin.responses.answers import answer_of_response, response_of_answer
from arkdev.plugin.responses.items import items_of_messages, messages_of_input
from arkdev.plugin.responses.requests import chat_body_of_responses, responses_body_of_chat
from arkdev.plugin.responses.tools import chat_tool_choice, chat_tools

__all__ = [
    "answer_of_response",
    "chat_body_of_responses",
    "chat_tool_choice",
    "chat_tools",
    "items_of_messages",
    "messages_of_input",
    "response_of_answer",
    "responses_body_of_chat",
]
