"""Serve a GGUF file with llama.cpp until standard input closes; prints the URL.

Run with the Python of an environment that has xllamacpp: ``python serve_llama.py MODEL.gguf``
"""

from __future__ import annotations

import sys

import xllamacpp


def main() -> None:
    """Serve the file that the command line names, as the model ``tiny``."""
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.model_alias = {"tiny"}
    params.n_ctx = 2048
    params.n_parallel = 1
    params.port = 0
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
