"""搜索工具：给模型看的定义、参数检查、执行。rollout 和 grader 共用。

设置了环境变量 SEARCH_API_KEY 时请求真实的搜索 API；没有时用 MCP 服务器在本地的语料里搜索。
"""

import json
import os
from contextlib import asynccontextmanager

import httpx
import jsonschema
from ark_sdk.types.pipeline_plugin.rollout import RolloutRetryException

from plugins.mcp_search import search_server

SEARCH_API_URL = "https://open.feedcoopapi.com"
SEARCH_API_TIMEOUT = 20.0  # 秒
# 所有客户端共用的 TLS 设置：建一个要花几十毫秒的 CPU，所以在导入时建好，不占用事件循环
TLS_CONTEXT = httpx.create_ssl_context()

search_tool = {
    "type": "function",
    "function": {
        "name": "web_search",
        "description": "互联网搜索",
        "parameters": {
            "type": "object",
            "properties": {
                "Query": {
                    "type": "string",
                    "description": "搜索的关键词，1~100 个字符；一次只搜一个词",
                    "minLength": 1,
                    "maxLength": 100,
                },
                "Count": {
                    "type": "integer",
                    "description": "最多返回几条结果",
                    "default": 10,
                    "minimum": 1,
                    "maximum": 50,
                },
            },
            "required": ["Query"],
            "additionalProperties": False,
        },
    },
}
arguments_schema = jsonschema.Draft202012Validator(search_tool["function"]["parameters"])


class ToolCallError(Exception):
    """模型发起的工具调用写错了。reason 是固定的名字，便于在日志里统计。"""

    def __init__(self, reason, message):
        super().__init__(message)
        self.reason = reason


def read_arguments(function):
    """检查一次工具调用的名字和参数，返回参数；写错了就抛出 ToolCallError。"""
    if function.name != search_tool["function"]["name"]:
        raise ToolCallError("unknown_tool", f"没有名为 {function.name!r} 的工具")
    try:
        arguments = json.loads(function.arguments or "")
        arguments_schema.validate(arguments)
    except json.JSONDecodeError as error:
        message = f"参数不是合法的 JSON：{error}；原文 {function.arguments!r}"
        raise ToolCallError("invalid_json", message) from error
    except jsonschema.ValidationError as error:
        message = f"参数不符合定义：{error.message}；原文 {function.arguments!r}"
        raise ToolCallError("bad_arguments", message) from error
    return arguments


class McpSearch:
    """在本地的语料里搜索。"""

    is_remote = False

    async def search(self, arguments):
        """返回结果的 JSON 文字；暂时的错误抛出 RolloutRetryException。"""
        return await search_server.call_tool("web_search", arguments)


class SearchApi:
    """请求真实的搜索 API。"""

    is_remote = True

    def __init__(self, client):
        self._client = client

    async def search(self, arguments):
        """返回结果的 JSON 文字；暂时的错误抛出 RolloutRetryException，密钥不对则直接报错。"""
        try:
            response = await self._client.post(
                "search_api/web_search", json={**arguments, "SearchType": "web"}
            )
        except httpx.HTTPError as error:
            raise RolloutRetryException(f"web_search 请求失败：{error!r}") from error
        if response.status_code in (401, 403):
            raise PermissionError(f"SEARCH_API_KEY 被拒绝：{response.status_code} {response.text}")
        if response.is_error:
            raise RolloutRetryException(f"web_search：{response.status_code} {response.text}")
        try:
            answer = response.json()
        except ValueError as error:
            raise RolloutRetryException(f"web_search 的结果不是 JSON：{response.text}") from error
        if not isinstance(answer, dict) or not answer.get("Result"):
            raise RolloutRetryException(f"web_search 的结果里没有 Result：{answer}")
        return json.dumps(answer, ensure_ascii=False)


@asynccontextmanager
async def open_search():
    """一条轨迹用的搜索。"""
    api_key = os.getenv("SEARCH_API_KEY")
    if not api_key:
        yield McpSearch()
        return
    async with httpx.AsyncClient(
        base_url=SEARCH_API_URL,
        headers={"Authorization": f"Bearer {api_key}"},
        timeout=SEARCH_API_TIMEOUT,
        verify=TLS_CONTEXT,
    ) as client:
        yield SearchApi(client)
