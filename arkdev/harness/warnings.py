"""Warning codes: what each means and what to do about it. One table for report and documents.

Whoever adds a warning to a record adds its code here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WarningText:
    """`meaning` says what happened, `advice` what to do."""

    meaning: str
    advice: str


WARNINGS: dict[str, WarningText] = {
    "client_built_per_rollout": WarningText(
        "the rollout built a model client of its own, which costs 50 to 90 ms of CPU each time",
        "take proxy.rollout_client() or proxy.async_rollout_client(), which share one transport",
    ),
    "tool_calls_with_finish_stop": WarningText(
        "the model's answer carried tool calls, but its finish_reason was stop",
        "decide by message.tool_calls, not by finish_reason",
    ),
    "finish_tool_calls_without_calls": WarningText(
        "the answer's finish_reason was tool_calls, but it carried none",
        "decide by message.tool_calls, not by finish_reason; end the loop when there are none",
    ),
    "invalid_tool_arguments": WarningText(
        "the model wrote tool arguments that are not a JSON object",
        "catch the error and tell the model in the tool's result, so that it can correct itself",
    ),
    "double_encoded_arguments": WarningText(
        "tool arguments were a JSON string that holds JSON",
        "decode once more in the tool, or let the reward punish it",
    ),
    "tool_message_without_call": WarningText(
        "a tool message was sent that answers no tool call of the assistant message before it",
        "append the assistant message with its tool_calls, then a tool message for each call with "
        "its tool_call_id; strict endpoints refuse anything else",
    ),
    "raw_call_not_processed": WarningText(
        "a raw client's answer was never handed to proxy.process_completion()",
        "call it after every answer, or use a wrapped client",
    ),
    "raw_sampling_parameter": WarningText(
        "a raw client's request set a sampling parameter itself; training takes it from the sample",
        "leave it out, or pass proxy.get_extra_body()",
    ),
    "client_retried": WarningText(
        "a client of the plugin's own lost patience and sent a model call again by itself",
        "give it a longer timeout and max_retries=0: arkdev sends failed calls again already",
    ),
    "text_replaced": WarningText(
        "text held half a character (a lone surrogate), written as U+FFFD",
        "look at how the rollout cuts or joins strings",
    ),
    "not_json": WarningText(
        "a value that JSON cannot hold was written as its repr",
        "put only numbers, strings, lists and dicts with string keys into extra and config",
    ),
    "usage_unknown": WarningText(
        "the endpoint did not say how many tokens an answer took",
        "these are left out of all token averages; ask the endpoint for usage if they matter",
    ),
    "evidence_incomplete": WarningText(
        "token ids or logprobs are missing for a part of the trajectory",
        "fine for a test; training needs an endpoint that returns them for every answer",
    ),
    "history_rewritten": WarningText(
        "the rollout changed earlier messages, so that only the common beginning keeps its tokens",
        "only append messages if every turn shall be trained on",
    ),
    "no_model_call": WarningText(
        "the rollout ended without a single model call: there is nothing to train on",
        "check for a create() without await, an early return, an exception that is caught and "
        "dropped, and a client of the rollout's own whose calls bypass the "
        "proxy: take proxy.rollout_client(); return DISCARD for samples that need no call",
    ),
    "answers_cut": WarningText(
        "most rollouts ended with an answer that was cut short at max_new_tokens",
        "raise it (--max-new-tokens, or in the sample or the job), or ask for shorter answers",
    ),
    "call_from_unknown_thread": WarningText(
        "a model call came from a thread that belongs to no rollout; it counts for the rollout "
        "that its client was made for, whichever sample it was about",
        "run the thread in contextvars.copy_context(), and take a client in each rollout",
    ),
    "empty_answer": WarningText(
        "an answer had neither text nor tool calls",
        "look at the finish reason, and at what the endpoint does with the prompt",
    ),
    "reward_constant": WarningText(
        "every rollout got the same reward: there is no training signal",
        "check that the grader reads the answer, or take samples of other difficulty",
    ),
    "advantages_in_part": WarningText(
        "graders gave advantages for some samples and none for others, which no batch may mix",
        "return seq_advantages or tok_advantages for every sample, or for none",
    ),
    "metric_not_finite": WarningText(
        "a grader gave a metric that is NaN or infinite; it was left out",
        "leave the key out where there is nothing to measure",
    ),
    "tape_without_stream": WarningText(
        "a service answered with a stream, which a tape does not hold: this rollout cannot be "
        "replayed",
        "ask for a whole answer (stream=False) while recording",
    ),
    "tape_left_over": WarningText(
        "the recorded rollout or grader made a request that the replayed one did not",
        "if that is meant, record the tape anew",
    ),
    "tape_borrowed": WarningText(
        "a request was answered with what another rollout of the recorded run had got, which "
        "shared it with this one (a cache, a connection)",
        "fine when the plugin caches; else the code asks for something that it did not ask for",
    ),
    "exception_swallowed": WarningText(
        "a model call failed and the rollout went on as if it had not",
        "let the error rise, or return RETRY, so that the sample is tried again",
    ),
}


def describe_warning(code: str) -> WarningText:
    """Return the text of `code`; a code that this version does not know describes itself."""
    unknown = WarningText(code.replace("_", " "), "this version of arkdev has no advice on it")
    return WARNINGS.get(code, unknown)
