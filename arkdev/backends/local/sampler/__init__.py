"""The engine ``torch``: samples answers in this process, from a Hugging Face causal LM.

==================  ============================================================================
`engine`            `TorchEngine`: the seam's implementation, called from any event loop
`engine_thread`     the loop: admit, prefill, decode; requests join and leave between two steps
`rows`              one request under way, and what is checked of it before
`slots`             which slot of the cache holds which tokens; prefixes that are found again
`kv_cache`          keys and values of all slots
`attention`         attention of a decode step and of a prefill chunk over that cache
`llama_forward`     the fast forward pass: Llama, Mistral, Qwen2, Qwen3
`module_forward`    the forward pass of any other model, by its own modules
`model_forward`     which of the two, and the check that it computes what the model computes
`model_weights`     a model's weights with adapters merged
`distribution`      from logits to tokens and logprobs
==================  ============================================================================

**Same request, same answer.** Measured on a CPU (torch 2.13, MKL, 1 and 2 threads): a row of a
matrix product has the same bits in any batch of at least 4 rows, if no thread has fewer than 4 of
them; so steps are padded to multiples of 8 rows. A row of attention has the same bits whatever runs
beside it, but not always when keys are padded to another length, and a key that a decode step
computed differs in its last bits from one that a prefill chunk computed. By default that is left as
it is: which prefixes are cached and how long the longest row is can change the last bits of a
logprob, and so, rarely, a token. With ``deterministic=True``

* each row attends over a padded length that follows from its own length alone;
* prefill goes in aligned chunks of a fixed shape, and only keys that prefill computed are found
  again, so a cached prefix has the bits that it would have had;
* at the start it is tried whether rows of a step depend on the number of rows beside them or on
  their place; where they do, one request runs at a time.
"""
