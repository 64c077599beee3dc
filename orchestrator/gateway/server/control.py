"""How the orchestrator steers the gateway: one JSON line each way over a unix socket.

The socket lies in the container's own /tmp; an agent has no way to it. `ctl` is its client.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from .access import Access
from .desk import Desk
from .replay import Recording

SOCKET = "/tmp/gateway.sock"
MAX_LINE = 1 << 20


async def serve(desk: Desk, path: str = SOCKET) -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reply: dict[str, Any]
        try:
            order = json.loads(await reader.readline())
            reply = await obey(desk, order)
        except (ValueError, KeyError, TypeError, OSError) as exc:
            reply = {"error": f"{type(exc).__name__}: {exc}"}
        # Whoever gave the order may have gone meanwhile.
        with suppress(ConnectionError):
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(answer, path, limit=MAX_LINE)


async def obey(desk: Desk, order: dict[str, Any]) -> dict[str, Any]:
    """Carry out one order. `do` names it:

    `status`; `scripts` (`path` of a JSON file in a volume); `ollama` (`url`);
    `remote` (`kind`, `url`, `key`); `replay` (`run`, `path` of its recording) → `calls`;
    `open` (see Accesses.open) → `token`, `file` of its calls;
    `close` (`token`) → `file`, `lines`, `lost` (why not all calls are recorded).
    """
    match order["do"]:
        case "status":
            return desk.status()
        case "scripts":
            scripts = json.loads(Path(order["path"]).read_text(encoding="utf-8"))
            desk.use_scripts(scripts)
            return {"models": sorted(scripts)}
        case "ollama":
            await desk.use_ollama(order["url"])
            return {}
        case "remote":
            await desk.use_remote(order["kind"], order["url"], order["key"])
            return {}
        case "replay":
            # In a thread: a recording can be gigabytes.
            recording = await asyncio.to_thread(Recording, Path(order["path"]))
            desk.recordings[order["run"]] = recording
            return {"calls": len(recording)}
        case "open":
            access = desk.accesses.open(order)
            return {"token": access.token, "file": _path(desk, access)}
        case "close":
            closed = await desk.accesses.close(order["token"])
            if closed is None:
                raise ValueError("no such token is open")
            lines, lost = closed.recorded, closed.lost
            return {"file": _path(desk, closed), "lines": lines, "lost": lost}
        case unknown:
            raise ValueError(f"no such order: {unknown!r}")


def _path(desk: Desk, access: Access) -> str:
    return str(desk.recorder.folder / access.file)
