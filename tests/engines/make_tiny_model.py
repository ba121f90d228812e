"""Make the model that the real servers serve: a tiny Qwen3 that knows a few dialogues by heart.

Run with the engine's own Python, which brings torch, transformers, tokenizers and gguf::

    python make_tiny_model.py DIALOGUES.json FOLDER

writes FOLDER/hf (for vLLM) and FOLDER/tiny.gguf (for llama.cpp). A dialogue has ``messages``,
``tools`` and the ``answer`` to learn.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import gguf
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = [END_OF_TEXT, TURN_START, TURN_END]
TOOL_TAGS = ["<tool_call>", "</tool_call>"]
VOCABULARY_SIZE = 600
CONTEXT_LENGTH = 2048
MAX_STEPS = 400
ENOUGH_LOSS = 0.002
CHAT_TEMPLATE = """\
{%- if tools %}{{- '<|im_start|>system\\nTools:' }}
{%- for tool in tools %}{{- ' ' + tool.function.name }}{% endfor %}
{{- '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}{{- message.reasoning_content + '\\n' }}{% endif %}
{%- if message.content %}{{- message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}
{{- '}\\n</tool_call>\\n' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE that can write any text and is short on `texts`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(TOOL_TAGS),
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
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
    torch.set_num_threads(1)  # too small for two, and the machine has other work
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


def pairs_of(
    dialogues: list[dict[str, Any]], tokenizer: PreTrainedTokenizerFast
) -> list[tuple[str, str]]:
    """(prompt, answer) as the chat template writes them.

    Some servers leave the tools out where the request says that none may be called, and some
    parse the arguments of earlier calls: each form is learnt.
    """
    pairs = []
    for dialogue in dialogues:
        messages = with_parsed_arguments(dialogue["messages"])
        answer = with_parsed_arguments([dialogue["answer"]])[0]
        for tools in {id(None): None, id(dialogue["tools"]): dialogue["tools"]}.values():
            if answer.get("tool_calls") and not tools:
                continue
            prompt = tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=False, add_generation_prompt=True
            )
            whole = tokenizer.apply_chat_template([*messages, answer], tools=tools, tokenize=False)
            pairs.append((prompt, whole.removeprefix(prompt).removesuffix("\n")))
    return list(dict.fromkeys(pairs))


def with_parsed_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`messages` as servers hand them to a template: arguments are objects."""
    parsed = copy.deepcopy(messages)
    for message in parsed:
        for call in message.get("tool_calls") or []:
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return parsed


def learn(
    model: Qwen3ForCausalLM,
    *,
    pairs: list[tuple[str, str]],
    tokenizer: PreTrainedTokenizerFast,
) -> float:
    """Train `model` on all pairs at once until it knows them; return the last loss."""
    rows = []
    for prompt, answer in pairs:
        ids = [tokenizer.encode(text, add_special_tokens=False) for text in (prompt, answer)]
        rows.append((ids[0] + ids[1], [-100] * len(ids[0]) + ids[1]))
    length = max(len(ids) for ids, _ in rows)
    pad = tokenizer.pad_token_id
    inputs = torch.tensor([ids + [pad] * (length - len(ids)) for ids, _ in rows])
    labels = torch.tensor([want + [-100] * (length - len(want)) for _, want in rows])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss = float("inf")
    for _ in range(MAX_STEPS):
        output = model(input_ids=inputs, labels=labels)
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss = output.loss.item()
        if loss < ENOUGH_LOSS:
            break
    return loss


def write_gguf(path: Path, *, model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
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
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_tokenizer(writer, tokenizer=tokenizer)
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


def add_tokenizer(writer: gguf.GGUFWriter, *, tokenizer: PreTrainedTokenizerFast) -> None:
    """Write vocabulary, merges and chat template."""
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    kinds = {
        **dict.fromkeys(SPECIAL_TOKENS, gguf.TokenType.CONTROL),
        **dict.fromkeys(TOOL_TAGS, gguf.TokenType.USER_DEFINED),
    }
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(token, gguf.TokenType.NORMAL) for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def main() -> None:
    """Write both forms into the folder that the command line names."""
    dialogues = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    folder = Path(sys.argv[2])
    tokenizer = make_tokenizer([json.dumps(dialogue) for dialogue in dialogues])
    model = make_model(tokenizer)
    pairs = pairs_of(dialogues, tokenizer)
    loss = learn(model, pairs=pairs, tokenizer=tokenizer)
    model.save_pretrained(folder / "hf")
    tokenizer.save_pretrained(folder / "hf")
    write_gguf(folder / "tiny.gguf", model=model, tokenizer=tokenizer)
    print(f"{len(pairs)} dialogues, {len(tokenizer)} tokens, loss {loss:.4f}: {folder}")


if __name__ == "__main__":
    main()
