"""Run a command, and end it with all that it started when its lifeline is cut.

    python -I guardian.py LIFELINE FOLDER COMMAND...

LIFELINE is a descriptor whose other end arkdev holds: it is closed when arkdev asks for the end,
and also when arkdev was killed, which it cannot tell anybody any more. The command gets a moment to
put away its shared memory. FOLDER, which arkdev made for it, is removed then. Must lead a process
group.

Runs in vLLM's environment, where arkdev is not installed: the standard library alone.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading

_ENDS_WITHIN_S = 8.0


def main() -> int:
    """Return the command's exit code; 128 + the number of the signal that ended it."""
    lifeline, folder, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    is_cut = threading.Event()

    def watch() -> None:
        while os.read(lifeline, 1):
            pass
        is_cut.set()
        _end(child, folder)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    code = child.wait()
    if is_cut.is_set():
        watching.join()  # it ends this process too
    return code if code >= 0 else 128 - code


def _end(child: "subprocess.Popen[bytes]", folder: str) -> None:
    child.terminate()
    try:
        child.wait(_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
