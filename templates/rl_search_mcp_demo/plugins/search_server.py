"""离线搜索的 MCP 服务器（stdio）：在 search_corpus.py 的语料里搜索。

一般不用自己启动：没有设置 SEARCH_API_KEY 时，mcp_search.py 会把它作为子进程启动。
标准输入关闭时它就退出，所以父进程无论怎样结束都不会留下它。
"""

import json

from mcp.server.fastmcp import FastMCP

from plugins.search_corpus import search

server = FastMCP("search", log_level="WARNING")


@server.tool(name="web_search", description="互联网搜索", structured_output=False)
def web_search(Query: str, Count: int = 10) -> str:
    """结果的形状与真实的搜索 API 相同：Result.WebResults 是一个列表。"""
    results = [
        {"Title": title, "Url": f"https://yunyu.example/{title}", "Snippet": text}
        for title, text in search(Query, Count)
    ]
    answer = {"Result": {"ResultCount": len(results), "WebResults": results}}
    return json.dumps(answer, ensure_ascii=False)


if __name__ == "__main__":
    server.run(transport="stdio")
