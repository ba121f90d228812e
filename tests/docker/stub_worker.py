"""What a worker is to a container: a server that says when it is ready, and does as it is told."""

import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

kept = []


def attempt(action):
    try:
        return str(action())
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def leak(mib):
    def work():
        for _ in range(mib):
            kept.append(bytearray(os.urandom(1) * 2**20))
            time.sleep(0.002)

    threading.Thread(target=work, daemon=True).start()


def connect(host, port):
    socket.create_connection((host, port), timeout=2).close()
    return "connected"


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        return file.write(text)


def fill(mib):
    with open("/tmp/full", "wb") as file:
        for _ in range(mib):
            file.write(bytes(2**20))


def put(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def put_error(as_hex):
    sys.stderr.buffer.write(bytes.fromhex(as_hex))
    sys.stderr.flush()


ACTIONS = {
    "environment": lambda: dict(os.environ),
    "identity": lambda: [os.getuid(), os.getgid(), os.getpid()],
    "status": lambda: read("/proc/self/status"),
    "write": lambda path: attempt(lambda: write(path, "x")),
    "fill": lambda mib: attempt(lambda: fill(mib)),
    "get": lambda url: attempt(lambda: urllib.request.urlopen(url, timeout=3).read().decode()),
    "connect": lambda host, port: attempt(lambda: connect(host, port)),
    "resolve": lambda name: attempt(lambda: socket.gethostbyname(name)),
    "leak": leak,
    "exit": lambda code: os._exit(code),
    "signal": lambda name: os.kill(os.getpid(), signal.Signals[name]),
    "sleep": time.sleep,
    "spin": spin,
    "print": put,
    "error": put_error,
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(None)

    def do_POST(self):
        name, *arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(ACTIONS[name](*arguments))

    def answer(self, result):
        body = json.dumps(result).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def say(**fields):
    sys.stdout.write("\x1e" + json.dumps(fields) + "\n")
    sys.stdout.flush()


behaviour = os.environ.get("STUB", "")
if behaviour == "fails":
    say(
        failed={
            "code": "PluginError",
            "type": "ModuleNotFoundError",
            "message": "No module named 'nowhere'",
            "where": "plugins/search.py:3",
        }
    )
    sys.exit(1)
if behaviour == "leaks":
    kept.append(bytearray(2**30))
if behaviour == "exits":
    os._exit(7)
if behaviour == "hangs":
    time.sleep(600)
server = ThreadingHTTPServer(("0.0.0.0", int(os.environ["_FAAS_RUNTIME_PORT"])), Handler)
say(ready={"port": server.server_port, "import_s": 0.25})
server.serve_forever()
