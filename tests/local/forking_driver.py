"""Runs command lines, each in a fork of this process, which has imported torch already.

It reads a JSON list of arguments from each line of its input, prints the fork's process id at once
and the exit status once the fork has ended (negative: killed by that signal).
"""

import json
import os
import sys

import torch
import transformers  # noqa: F401

import arkdev.backends.local.opening
import arkdev.flows.train  # noqa: F401
from arkdev.cli.main import run


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            output = os.open("output.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            code = 70
            try:
                code = run(json.loads(line))
            finally:
                os._exit(code)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
