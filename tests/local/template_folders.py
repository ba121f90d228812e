"""Folders with a tokenizer and a chat template, without weights: one way to write turns each."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TOOL_SECTION = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
CALL_SECTION = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)


def _chatml(*, reasoning: str, tools: str = TOOL_SECTION, calls: str = CALL_SECTION) -> str:
    return f"""\
{{%- set last = namespace(question=-1) %}}
{{%- for message in messages %}}
{{%- if message.role == 'user' %}}{{%- set last.question = loop.index0 %}}{{%- endif %}}
{{%- endfor %}}
{{%- if tools %}}{{{{- '<|im_start|>system\\n' }}}}
{{%- if messages[0].role == 'system' %}}{{{{- messages[0].content + '\\n\\n' }}}}{{%- endif %}}
{{{{- {tools!r} }}}}
{{%- for tool in tools %}}{{{{- '\\n' + (tool | tojson) }}}}{{%- endfor %}}
{{{{- {calls!r} }}}}
{{{{- '<|im_end|>\\n' }}}}
{{%- elif messages[0].role == 'system' %}}
{{{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}}}
{{%- endif %}}
{{%- for message in messages %}}
{{%- if message.role == 'user' %}}
{{{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}}}
{{%- elif message.role == 'assistant' %}}
{{{{- '<|im_start|>assistant\\n' }}}}
{{%- if {reasoning} %}}
{{{{- '<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' }}}}
{{%- endif %}}
{{{{- message.content }}}}
{{%- for call in message.tool_calls or [] %}}
{{%- if message.content or not loop.first %}}{{{{- '\\n' }}}}{{%- endif %}}
{{{{- '<tool_call>\\n{{"name": "' + call.function.name + '", "arguments": ' }}}}
{{%- if call.function.arguments is string %}}{{{{- call.function.arguments }}}}
{{%- else %}}{{{{- call.function.arguments | tojson }}}}{{%- endif %}}
{{{{- '}}\\n</tool_call>' }}}}
{{%- endfor %}}
{{{{- '<|im_end|>\\n' }}}}
{{%- elif message.role == 'tool' %}}
{{%- if messages[loop.index0 - 1].role != 'tool' %}}{{{{- '<|im_start|>user' }}}}{{%- endif %}}
{{{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}}}
{{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}}
{{{{- '<|im_end|>\\n' }}}}{{%- endif %}}
{{%- endif %}}
{{%- endfor %}}
{{%- if add_generation_prompt %}}{{{{- '<|im_start|>assistant\\n' }}}}
{{%- if enable_thinking is defined and enable_thinking is false %}}
{{{{- '<think>\\n\\n</think>\\n\\n' }}}}{{%- endif %}}{{%- endif %}}
"""


KEEPS_REASONING = _chatml(reasoning="message.reasoning_content", tools="Tools:", calls="")
"""Every message is written the same, whatever follows."""
QWEN3 = _chatml(
    reasoning="loop.index0 > last.question and (loop.last or message.reasoning_content)"
)
"""Qwen3's: reasoning before the last question is dropped; the last answer has a block always."""

LLAMA = """\
{{- '<|begin_of_text|>' }}
{%- if tools %}{{- '<|start_header_id|>system<|end_header_id|>\\n\\nTools: ' }}
{%- for tool in tools %}{{- tool.function }}{%- endfor %}{{- '<|eot_id|>' }}{%- endif %}
{%- for message in messages %}
{{- '<|start_header_id|>' + ('ipython' if message.role == 'tool' else message.role) }}
{{- '<|end_header_id|>\\n\\n' }}
{%- if message.tool_calls %}
{%- if message.tool_calls | length != 1 %}
{{- raise_exception('one tool call at a time') }}{%- endif %}
{{- '{"name": "' + message.tool_calls[0].function.name + '", "parameters": ' }}
{{- message.tool_calls[0].function.arguments | tojson }}{{- '}' }}
{%- else %}{{- message.content | trim }}{%- endif %}
{{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""
"""Llama 3's form: tools as Python dicts, calls without marks, texts without space around them."""

_CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MARKS = (
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>"),
)
_LLAMA_TOKENS = (
    *("<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
    "<|eot_id|>",
)
_TEXTS = (
    "How is the weather in Oslo? It is 7 degrees and rainy. Thanks. And tomorrow?",
    '{"name": "get_weather", "arguments": {"city": "Bergen"}} system user assistant ipython',
    "hello hello world tools " * 20,
)


def write_folder(
    folder: Path,
    template: str,
    *,
    model_type: str = "none",
    end_token_ids: list[int] | int | None = None,
) -> Path:
    """Write a tokenizer folder; `end_token_ids` go into its generation_config.json."""
    is_llama = "<|eot_id|>" in template
    special = _LLAMA_TOKENS if is_llama else _CHATML_TOKENS
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXTS, trainer)
    if not is_llama:
        tokenizer.add_tokens(list(_MARKS))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=special[-1] if is_llama else "<|im_end|>",
        pad_token=special[0],
        chat_template=template,
    )
    fast.save_pretrained(folder)
    _write(folder / "config.json", {"model_type": model_type})
    if end_token_ids is not None:
        _write(folder / "generation_config.json", {"eos_token_id": end_token_ids})
    return folder


def _write(path: Path, document: dict[str, object]) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")
