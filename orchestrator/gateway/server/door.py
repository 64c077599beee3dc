"""Connections: so many from one address, so that one run's agent can't keep others out."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 64
"""From one address at a time; a further one is cut."""


class Door(H11Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        here = self.client and self.client[0]
        same = sum(
            isinstance(other, Door) and other.client is not None and other.client[0] == here
            for other in self.connections
        )
        if same > MAX_CONNECTIONS:
            transport.abort()
