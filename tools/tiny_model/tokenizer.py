"""The tokenizer: byte-level BPE whose merges come from a list of words, and the chat template.

The merges are learnt inside the words alone, so a word is the same token wherever it stands:
what the model copies from a question or a result looks there as it looks in its own turn. Every
digit is a token of its own.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tools.tiny_model import arithmetic, echo, search, weather

END_OF_TEXT, END_OF_TURN = "<|endoftext|>", "<|im_end|>"
SPECIAL = (END_OF_TEXT, "<|im_start|>", END_OF_TURN)
MARKS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
SCAFFOLD = ('{"name": "', '", "arguments": ', '{"', '": "', '", "', '"}}', "system", "user")
TEMPLATE = Path(__file__).with_name("chat_template.jinja")
CONTEXT = 2048  # tokens
# enough for every word whole: training ends when nothing is left to merge
MOST_TOKENS = 2000


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Train the tokenizer; the same on every run."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    listed = [*weather.words(), *arithmetic.words(), *search.words(), *echo.words()]
    listed += [*SCAFFOLD, "assistant"]
    trainer = trainers.BpeTrainer(
        vocab_size=MOST_TOKENS,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sorted(set(listed)), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    # not special: they stay when special tokens are left out, so that a parser sees them
    fast.add_tokens(list(MARKS))
    fast.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return fast
