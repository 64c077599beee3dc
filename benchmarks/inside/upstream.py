"""A model server that streams what its prompt orders, in Ollama's shapes. Standard library only.

The last message ends in a line of JSON: `chunks` how many, `chars` of text each, `rate` chunks a
second (0: as fast as the reader takes them).
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import re
import socket
import time

PORT = 11434
DISTINCT = 4096
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@functools.lru_cache(maxsize=8192)
def chunk(number: int, chars: int) -> bytes:
    """The text of each is unlike the one before: repetition is a fault of its own."""
    text = hashlib.sha256(str(number).encode()).hexdigest()
    return framed(said((text * (chars // len(text) + 1))[:chars]))


def framed(data: dict[str, object]) -> bytes:
    line = json.dumps(data).encode() + b"\n"
    return b"%x\r\n%b\r\n" % (len(line), line)


def said(text: str) -> dict[str, object]:
    stamp = "2026-08-21T10:00:00.123456789Z"
    message = {"role": "assistant", "content": text}
    return {"model": "bench", "created_at": stamp, "message": message, "done": False}


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Call after call on one connection, unless the client asks for its end."""
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while head := await next_head(reader):
            length = re.search(rb"\r\ncontent-length: *(\d+)", head)
            assert length is not None
            body = json.loads(await reader.readexactly(int(length[1])))
            prompt = body["messages"][-1]["content"]
            await stream(writer, len(prompt) // 4, json.loads(prompt.rpartition("\n")[2]))
            if b"\r\nconnection: close" in head:
                break
    finally:
        writer.close()


async def next_head(reader: asyncio.StreamReader) -> bytes:
    """The head of the next request, in small letters; empty when the client has gone."""
    try:
        return (await reader.readuntil(b"\r\n\r\n")).lower()
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


async def stream(writer: asyncio.StreamWriter, prompt_tokens: int, order: dict[str, int]) -> None:
    writer.write(HEAD)
    began = time.monotonic()
    sent = 0
    while sent < order["chunks"]:
        due = order["chunks"]
        if order["rate"]:
            due = min(due, int((time.monotonic() - began) * order["rate"]) + 1)
        for number in range(sent, due):
            writer.write(chunk(number % DISTINCT, order["chars"]))
            if number % 64 == 0:
                await writer.drain()
        sent = due
        if order["rate"]:
            await asyncio.sleep(max(0.0, began + sent / order["rate"] - time.monotonic()))
    counts = {"prompt_eval_count": prompt_tokens, "eval_count": sent, "eval_duration": 1}
    writer.write(framed(said("") | {"done": True, "done_reason": "stop"} | counts) + b"0\r\n\r\n")
    await writer.drain()


async def main() -> None:
    server = await asyncio.start_server(answer, "0.0.0.0", PORT, limit=1 << 24)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
