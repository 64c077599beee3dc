"""Streamed calls to several targets in turn, timed. Standard library only.

stdin: JSON with `targets` (list of `host`, `port`, `token`), `body`, `rounds`, `streams` at once,
`calls` of each, `stagger_s` between their starts. In each round every target is measured, the
order turned about; one round more, the first, is left out. stdout: JSON, a list of rounds, each a
list per target of calls, each `first_s` (sent → first byte of the body), `total_s`, `lines`,
`whole`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any


def request(target: dict[str, Any], body: bytes) -> bytes:
    head = (
        f"POST /api/chat HTTP/1.1\r\nHost: {target['host']}:{target['port']}\r\n"
        f"Authorization: Bearer {target['token']}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


async def call(target: dict[str, Any], data: bytes) -> dict[str, Any]:
    """One call on a connection of its own, as agents make them."""
    reader, writer = await asyncio.open_connection(target["host"], target["port"])
    began = time.perf_counter()
    writer.write(data)
    head = await reader.readuntil(b"\r\n\r\n")
    parts = [await reader.read(1 << 16)]
    first = time.perf_counter() - began
    while part := await reader.read(1 << 16):
        parts.append(part)
    total = time.perf_counter() - began
    writer.close()
    text = b"".join(parts)
    whole = b" 200 " in head.splitlines()[0] and text.endswith(b"\r\n0\r\n\r\n")
    return {
        "first_s": first,
        "total_s": total,
        "lines": text.count(b'"done": false') + text.count(b'"done": true'),
        "whole": whole and b'"done": true' in text,
    }


async def measure(order: dict[str, Any], target: dict[str, Any]) -> list[dict[str, Any]]:
    data = request(target, json.dumps(order["body"]).encode())

    async def worker(number: int) -> list[dict[str, Any]]:
        await asyncio.sleep(number * order["stagger_s"])
        return [await call(target, data) for _ in range(order["calls"])]

    found = await asyncio.gather(*(worker(number) for number in range(order["streams"])))
    return [one for calls in found for one in calls]


async def main() -> None:
    order = json.load(sys.stdin)
    targets = list(enumerate(order["targets"]))
    rounds = []
    for number in range(order["rounds"] + 1):
        found: dict[int, Any] = {}
        for index, target in targets if number % 2 == 0 else targets[::-1]:
            found[index] = await measure(order, target)
        rounds.append([found[index] for index, _ in targets])
    json.dump(rounds[1:], sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
