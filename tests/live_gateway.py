"""The gateway's server in a thread of the test, on a port of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import uvicorn

from orchestrator.gateway.server.app import make_app
from orchestrator.gateway.server.control import obey, serve
from orchestrator.gateway.server.desk import Desk
from orchestrator.gateway.server.door import Door
from orchestrator.records.calls import CallRecord

LOCAL = ("127.0.0.0/8",)


class _Server(uvicorn.Server):
    async def main_loop(self) -> None:
        """As its own, which looks whether it should end every tenth of a second: per test."""
        while not await self.on_tick(0):
            await asyncio.sleep(0.01)


class LiveGateway:
    """A context manager. `retry_wait_s` is 0: nothing is waited for between attempts."""

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / "gateway.sock")
        self.desk = Desk(folder / "records", retry_wait_s=0.0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._server: uvicorn.Server | None = None
        self.url = ""

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        config = uvicorn.Config(
            make_app(self.desk),
            port=0,
            proxy_headers=False,
            access_log=False,
            log_level="warning",
            lifespan="off",
            ws="none",
            http=Door,
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        async with await serve(self.desk, self.socket):
            task = asyncio.create_task(self._server.serve())
            while not self._server.started:
                await asyncio.sleep(0.01)
            port = self._server.servers[0].sockets[0].getsockname()[1]
            self.url = f"http://127.0.0.1:{port}"
            self._ready.set()
            await task

    def __enter__(self) -> LiveGateway:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._thread.join()

    def order(self, do: str, **more: Any) -> dict[str, Any]:
        """As control would be told; errors of the order are raised."""
        future = asyncio.run_coroutine_threadsafe(obey(self.desk, {"do": do, **more}), self._loop)
        return future.result(20)

    def open(
        self,
        model: str = "m",
        *,
        upstream: str = "ollama",
        sources: tuple[str, ...] = LOCAL,
        run: str = "r",
        stage: str = "s",
        turn: int = 0,
        **pins: Any,
    ) -> str:
        order = {"run": run, "stage": stage, "turn": turn, "model": model, "upstream": upstream}
        pinned = {"num_ctx": 8192, "seed": 7, "max_reply_tokens": 500, **pins}
        return str(self.order("open", **order, sources=list(sources), pins=pinned)["token"])

    def close(self, token: str) -> list[CallRecord]:
        answer = self.order("close", token=token)
        path = Path(answer["file"])
        lines = path.read_text().splitlines() if path.exists() else []
        assert len(lines) == answer["lines"]
        return [CallRecord.model_validate(json.loads(line)) for line in lines]
