"""Make the model that the real servers serve: a random Qwen3 with a small tokenizer and tools.

It says nothing sensible; a server treats it like any other model. Run with the engine's own
Python, which brings transformers, tokenizers and gguf::

    python make_tiny_model.py FOLDER      # writes FOLDER/hf (for vLLM) and FOLDER/tiny.gguf
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gguf
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = [END_OF_TEXT, TURN_START, TURN_END]
TOOL_TAGS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
VOCABULARY_SIZE = 600
CONTEXT_LENGTH = 2048
CORPUS = [
    "What is the weather in Paris? It is 21 degrees celsius in London and sunny in Paris.",
    '{"name": "get_weather", "arguments": {"location": "Paris", "unit": "celsius"}}',
    "Reply with one word. The capital of France is Paris. You may call the tools below.",
    "system user assistant tool function parameters required properties type object string",
]
CHAT_TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\nTools: ' + (tools | tojson) + '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}{{- '<think>' + message.reasoning_content + '</think>' }}{% endif %}
{%- if message.content is string %}{{- message.content }}
{%- elif message.content %}{% for part in message.content %}{{- part.text }}{% endfor %}{% endif %}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{%- if call.function.arguments is string %}{{- call.function.arguments }}
{%- else %}{{- call.function.arguments | tojson }}{% endif %}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE that can write any text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(TOOL_TAGS),
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(TOOL_TAGS)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        chat_template=CHAT_TEMPLATE,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """About half a million random parameters."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT_LENGTH,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config).to(torch.float32)


def write_gguf(
    path: Path, *, model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    """Write the same model for llama.cpp."""
    config = model.config
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT_LENGTH)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add_tokenizer(writer, tokenizer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":  # tied to the embeddings
            continue
        written = names.get_name(name, try_suffixes=(".weight",))
        assert written, f"no GGUF name for {name}"
        writer.add_tensor(written, tensor.detach().float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: PreTrainedTokenizerFast) -> None:
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    kinds = {
        **dict.fromkeys(SPECIAL_TOKENS, gguf.TokenType.CONTROL),
        **dict.fromkeys(TOOL_TAGS, gguf.TokenType.USER_DEFINED),
    }
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(token, gguf.TokenType.NORMAL) for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def main() -> None:
    """Write both forms into the folder that the command line names."""
    folder = Path(sys.argv[1])
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    model.save_pretrained(folder / "hf")
    tokenizer.save_pretrained(folder / "hf")
    write_gguf(folder / "tiny.gguf", model=model, tokenizer=tokenizer)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{parameters} parameters, {len(tokenizer)} tokens: {folder}")


if __name__ == "__main__":
    main()
