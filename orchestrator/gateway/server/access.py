"""Who may call: a token for one run, stage and turn, good from one network only."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from .wallet import Wallet


@dataclass(frozen=True)
class Pins:
    """What every request is made to say, whatever the agent asked.

    `temperature` and `think` None: the model's own. `silence_s` is the longest wait for the first
    token and between any two; `total_s` that for the whole call, attempts together.
    """

    num_ctx: int
    seed: int
    max_reply_tokens: int
    temperature: float | None = None
    think: bool | str | None = None
    keep_alive: str = "1h"
    silence_s: float = 600.0
    total_s: float = 3600.0


MAX_SEATS = 16
"""Requests that an access may have in progress."""
MAX_HELD = 8 << 20
"""Bytes of their bodies together: one of the largest, or several smaller ones."""


@dataclass
class Access:
    """An open door: where it may be used from, and what lies behind it."""

    token: str
    run: str
    stage: str
    turn: int
    model: str
    upstream: Literal["ollama", "scripted", "openai", "anthropic", "replay"]
    sources: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    pins: Pins
    file: str
    """Name of the file that its calls are recorded in."""
    wallet: Wallet = field(default_factory=Wallet)
    calls: int = 0
    refusals: int = 0
    recorded: int = 0
    lost: str = ""
    """Why a call could not be recorded; nothing is let through any more then."""
    closed: bool = False
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """Calls in progress."""
    seats: set[Seat] = field(default_factory=set)

    def sit(self) -> Seat:
        """Begin a request. Raises Refused where too many are in progress."""
        if len(self.seats) >= MAX_SEATS:
            raise Refused(429, f"{MAX_SEATS} requests are in progress; wait for one to end")
        return Seat(self)


class Seat:
    """One request in progress and the bytes of its body."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.bytes = 0
        access.seats.add(self)

    def hold(self, more: int) -> None:
        """Raises Refused where the access holds too much with that."""
        self.bytes += more
        if sum(seat.bytes for seat in self._access.seats) > MAX_HELD:
            raise Refused(429, f"the requests in progress are larger than {MAX_HELD} bytes")

    def leave(self) -> None:
        """The request is done with; fine more than once."""
        self._access.seats.discard(self)


class Refused(Exception):
    """A request that is not let through: HTTP status, and a sentence for the agent."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Accesses:
    """The tokens that are good now. `refused` counts what was turned away, by reason."""

    def __init__(self) -> None:
        self._open: dict[str, Access] = {}
        self._opened = 0
        # Another gateway may have written to the folder before this one.
        self._mark = secrets.token_hex(4)
        self.refused: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, order: dict[str, Any]) -> Access:
        """`order` has run, stage, turn, model, upstream, sources (CIDR) and pins; a wallet's
        limits and what was used before where there are limits."""
        self._opened += 1
        access = Access(
            token=secrets.token_urlsafe(32),
            run=order["run"],
            stage=order["stage"],
            turn=order["turn"],
            model=order["model"],
            upstream=order["upstream"],
            sources=tuple(ipaddress.ip_network(source) for source in order["sources"]),
            pins=Pins(**order["pins"]),
            file=f"calls-{self._mark}-{self._opened:05d}.jsonl",
            wallet=Wallet(**order.get("wallet", {})),
        )
        self._open[access.token] = access
        return access

    def admit(self, authorization: str | None, source: str) -> Access:
        """Raises Refused: no or unknown token, or the right one from the wrong network."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            self.refused["no-token"] += 1
            raise Refused(401, "a bearer token is needed")
        access = self._open.get(token.strip())
        if access is None:
            self.refused["unknown-token"] += 1
            raise Refused(401, "the token is unknown or no longer good")
        address = ipaddress.ip_address(source)
        if not any(address in network for network in access.sources):
            self.refused["wrong-network"] += 1
            raise Refused(403, "the token is not good from this network")
        return access

    async def close(self, token: str) -> Access | None:
        """No call comes through any more; those in progress are ended and recorded."""
        access = self._open.pop(token, None)
        if access is not None:
            access.closed = True
            tasks = list(access.tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return access
