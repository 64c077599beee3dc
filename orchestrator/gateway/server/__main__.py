"""The gateway's process: agents on port 11434, the orchestrator on a unix socket."""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

import uvicorn

from . import control
from .app import make_app
from .desk import Desk
from .door import Door

PORT = 11434
RECORDS = Path("/records")


async def main() -> None:
    desk = Desk(RECORDS)
    config = uvicorn.Config(
        make_app(desk),
        host="0.0.0.0",  # noqa: S104 - it has the networks that it was given, and no port is published
        port=PORT,
        # A header must not say where a call comes from.
        proxy_headers=False,
        access_log=False,
        log_level="warning",
        server_header=False,
        lifespan="off",
        ws="none",
        loop="asyncio",
        http=Door,
    )
    server = uvicorn.Server(config)
    # What is here now stays: looking through all of it for garbage would hold up every stream.
    gc.freeze()
    async with await control.serve(desk):
        await server.serve()


# httpx's pool looks for this package at every lock that it takes; told once that there is none, it
# does not search the disk seven times a call.
sys.modules["sniffio"] = None  # type: ignore[assignment]

if __name__ == "__main__":
    asyncio.run(main())
