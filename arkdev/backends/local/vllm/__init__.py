"""The engine ``vllm``: a vLLM server in an environment and a process of its own.

vLLM pins other versions of torch and transformers than training does (docs/decisions.md, 20), so
nothing of it is imported here.
"""
