"""离线搜索的客户端：第一次搜索时启动 MCP 服务器，同一个进程里所有的轨迹共用它。

服务器和它的连接在一个后台线程的事件循环里，所以不管调用者用的是哪个事件循环都能共用。
"""

import asyncio
import atexit
import logging
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import anyio
from ark_sdk.types.pipeline_plugin.rollout import RolloutRetryException
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client

logger = logging.getLogger(__name__)

WORKSPACE = Path(__file__).resolve().parent.parent
SERVER = StdioServerParameters(
    command=sys.executable, args=["-m", "plugins.search_server"], cwd=WORKSPACE
)
# 服务器断开时，正在进行的和之后的调用可能遇到的错误
BROKEN = (
    McpError,
    OSError,
    RuntimeError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
)
STOP_TIMEOUT = 5.0  # 秒；进程结束时等服务器退出的时间


@dataclass(frozen=True)
class Connection:
    """与一个服务器的连接；只能在 loop 里使用，设置 stop 就断开。"""

    session: ClientSession
    loop: asyncio.AbstractEventLoop
    stop: asyncio.Event


class SearchServer:
    """第一次使用时启动，断开之后再使用就重新启动。可以同时在几个线程里使用。"""

    def __init__(self):
        self._lock = threading.Lock()
        self._connecting = None
        self._thread = None

    async def call_tool(self, name, arguments):
        """调用一个工具，返回结果的文字；连不上、断开了、工具报错都是 RolloutRetryException。"""
        connecting = self._start()
        try:
            # shield：一条轨迹被取消，不影响等同一个连接的其他轨迹
            connection = await asyncio.shield(asyncio.wrap_future(connecting))
            work = connection.session.call_tool(name, arguments)
            result = await run_there(work, connection.loop)
        except BROKEN as error:
            self._forget(connecting)
            raise RolloutRetryException(f"离线搜索的服务器断开了：{error!r}") from error
        text = "".join(part.text for part in result.content)
        if result.isError:
            raise RolloutRetryException(f"{name} 报错：{text}")
        return text

    def stop(self):
        """断开并等服务器退出。"""
        with self._lock:
            connecting, thread = self._connecting, self._thread
            self._connecting = self._thread = None
        if thread is None:
            return
        if connecting.done() and connecting.exception() is None and thread.is_alive():
            connection = connecting.result()
            connection.loop.call_soon_threadsafe(connection.stop.set)
        thread.join(STOP_TIMEOUT)

    def _start(self):
        with self._lock:
            if self._connecting is None:
                self._connecting = Future()
                self._thread = threading.Thread(
                    target=hold_connection,
                    args=(self._connecting,),
                    name="mcp-search",
                    daemon=True,
                )
                self._thread.start()
            return self._connecting

    def _forget(self, connecting):
        with self._lock:
            if self._connecting is connecting:
                self._connecting = None


async def run_there(work, loop):
    """在另一个线程的事件循环里运行一个协程，在这里等它的结果。"""
    running = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
    try:
        await asyncio.wait([running])
    finally:
        running.cancel()
    if running.cancelled():
        # 被取消的不是我们，而是那边的事件循环结束了
        raise ConnectionError("连接已经关闭")
    return running.result()


def hold_connection(connecting):
    """启动服务器，把连接交给 connecting，然后一直等到断开。在自己的线程里运行。"""
    try:
        asyncio.run(_hold_connection(connecting))
    except Exception:
        logger.exception("离线搜索的服务器出错了")
    finally:
        if not connecting.done():
            connecting.set_exception(ConnectionError("没有启动；原因见上面的错误输出"))


async def _hold_connection(connecting):
    # sys.stderr 可能已被替换成没有文件描述符的对象，子进程不能用它
    async with (
        stdio_client(SERVER, errlog=sys.__stderr__) as streams,
        ClientSession(*streams) as session,
    ):
        await session.initialize()
        connection = Connection(session, asyncio.get_running_loop(), asyncio.Event())
        connecting.set_result(connection)
        await connection.stop.wait()


search_server = SearchServer()
atexit.register(search_server.stop)
