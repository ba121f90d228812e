"""Telling a stub worker what to do."""

import aiohttp


async def ask(instance, *what, timeout_s=60):
    async with (
        aiohttp.ClientSession() as client,
        client.post(
            instance.url, json=what, timeout=aiohttp.ClientTimeout(total=timeout_s)
        ) as answer,
    ):
        assert answer.status == 200
        return await answer.json(content_type=None)


async def ask_its_last(instance, *what):
    """Tell it what it does not survive."""
    try:
        await ask(instance, *what)
    except (aiohttp.ClientError, OSError):
        return
