"""``python -I -m arkdev.faas_emulator.worker [SETTINGS]`` in the folder of a plugin's package.

The environment says what is served, and where (`wire`). Once the plugin is imported the worker
listens and says so on standard output (`log_wire`); when that fails it says why and ends with 1.
SETTINGS is JSON: ``host`` to listen on (every address by default, as in a container), and what
`confinement.confine` takes.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from arkdev.faas_emulator.worker.confinement import confine
from arkdev.faas_emulator.worker.http_server import HttpConnection
from arkdev.faas_emulator.worker.output import InstanceOutput
from arkdev.faas_emulator.worker.serving import FunctionService
from arkdev.faas_emulator.worker.wire import (
    ARK_URL_VARIABLE,
    DEFAULT_PORT,
    FUNCTION_VARIABLE,
    PORT_VARIABLE,
)
from arkdev.observe.plugin_threads import threads_follow
from arkdev.plugin import ark_sdk, redirect
from arkdev.plugin.error_documents import error_document
from arkdev.plugin.loading import LoadedPlugin, load_plugin

_EVERY_ADDRESS = "0.0.0.0"
_BACKLOG = 1024


def main() -> None:
    """Serve until the process is ended."""
    settings = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    del sys.argv[1:]  # no business of the plugin's
    sys.dont_write_bytecode = True
    confine(settings)
    output = InstanceOutput()
    output.take()
    faulthandler.enable()  # tells where code was when a library brings the process down
    # the first process of a container is not ended by a signal that it does not handle
    signal.signal(signal.SIGTERM, _end)
    root = Path.cwd()
    started = time.perf_counter()
    try:
        with threads_follow():
            ark_sdk.install()
            _redirect()
            loaded = load_plugin(os.environ.get(FUNCTION_VARIABLE, ""), root=root)
            asyncio.run(_serve(loaded, output, settings, started=started))
    except BaseException as error:  # noqa: BLE001 (a plugin's module may raise anything)
        output.tell(failed=error_document(error, root=root))
        os._exit(1)  # threads of the plugin's must not keep it


async def _serve(
    loaded: LoadedPlugin,
    output: InstanceOutput,
    settings: Mapping[str, Any],
    *,
    started: float,
) -> NoReturn:
    service = FunctionService(loaded, root=Path.cwd(), output=output)
    if loaded.plugin.kind.is_rollout:
        _prepare_clients()
    import_s = time.perf_counter() - started
    server = await asyncio.get_running_loop().create_server(
        lambda: HttpConnection(service.handle, refuse=service.refuse),
        settings.get("host", _EVERY_ADDRESS),
        int(os.environ.get(PORT_VARIABLE) or DEFAULT_PORT),
        backlog=_BACKLOG,
    )
    port = server.sockets[0].getsockname()[1]
    output.tell(ready={"port": port, "import_s": round(import_s, 6)})
    await server.serve_forever()
    raise AssertionError("a server that nobody closes has ended")


def _prepare_clients() -> None:
    """Import openai, where it is installed, before the first call: it takes about a second."""
    try:
        import_module("arkdev.plugin.clients").prepare()
    except ModuleNotFoundError as error:
        if error.name not in ("openai", "aiohttp"):
            raise


def _redirect() -> None:
    url = os.environ.get(ARK_URL_VARIABLE)
    if url:
        redirect.install()
        redirect.start(url, key=os.environ.get("ARK_API_KEY", ""))


def _end(signal_number: int, _frame: object) -> NoReturn:
    os._exit(128 + signal_number)


if __name__ == "__main__":
    main()
