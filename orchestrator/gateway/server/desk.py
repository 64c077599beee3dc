"""What the gateway holds: open tokens, upstreams, the record. All its doors work on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .access import Access, Accesses
from .calls import Asked
from .causes import Failed
from .recorder import Recorder
from .remote import Remote
from .replay import Recording
from .upstreams import Ollama, Scripted, Scripts, Upstream


class Desk:
    def __init__(self, records: Path, *, retry_wait_s: float = 1.0) -> None:
        self.accesses = Accesses()
        self.recorder = Recorder(records)
        self.retry_wait_s = retry_wait_s
        self.ollama: Ollama | None = None
        self.remotes: dict[str, Remote] = {}
        self.scripted = Scripted({})
        self.recordings: dict[str, Recording] = {}
        """By the run that replays them."""

    async def use_ollama(self, url: str) -> None:
        if self.ollama is not None:
            await self.ollama.aclose()
        self.ollama = Ollama(url)

    async def use_remote(self, kind: str, url: str, key: str) -> None:
        """Send calls for models of `kind` (`openai` or `anthropic`) to the API at `url`."""
        before = self.remotes.pop(kind, None)
        if before is not None:
            await before.aclose()
        self.remotes[kind] = Remote(kind, url, key)

    def use_scripts(self, scripts: Scripts) -> None:
        self.scripted = Scripted(scripts)

    def upstream_of(self, access: Access, asked: Asked) -> Upstream:
        """Where the next call of `access` goes.

        Raises Failed when no model server was named yet, or no recording delivered.
        """
        if access.upstream == "replay":
            if access.run not in self.recordings:
                raise Failed("not-found", f"no recording for {access.run!r} was delivered")
            return self.recordings[access.run].call(access, asked)
        if access.upstream == "scripted":
            return self.scripted.call(access)
        if access.upstream == "ollama":
            return self.server()
        if access.upstream not in self.remotes:
            raise Failed("unreachable", f"the gateway knows of no {access.upstream} API")
        return self.remotes[access.upstream]

    def server(self) -> Ollama:
        if self.ollama is None:
            raise Failed("unreachable", "the gateway knows of no model server")
        return self.ollama

    def status(self) -> dict[str, Any]:
        return {
            "open": len(self.accesses),
            "recorded": self.recorder.lines,
            "refused": dict(self.accesses.refused),
        }
