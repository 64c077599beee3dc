"""What the gateway costs, against a direct call to the same model server in the same run.

Server, gateway and client are containers on one network of their own; nothing else is asked.
Each figure is a median over pairs that were measured one right after the other, in turn the one
and the other first, so that what else the machine does falls on both. `make bench` runs it.
"""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from shown import machine, table

from orchestrator.gateway import service
from orchestrator.gateway.service import CallSettings, GatewayService, Uplink
from orchestrator.models.reference import parse_reference
from orchestrator.sandbox import image
from orchestrator.sandbox.container import Container, ContainerSpec
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import MIB, Limits

INSIDE = Path(__file__).parent / "inside"
CALLS = CallSettings(num_ctx=131072, max_reply_tokens=100_000)
LIMITS = Limits(memory_mb=512, cpus=1, pids=64, tmp_mb=16)
MEASURE_S = 300.0
MODEL = "bench:latest"
UNRECORDED = (
    "import asyncio\n"
    "from server import __main__ as main\n"
    "from server.recorder import Recorder\n"
    "Recorder.write = lambda *_: None\n"
    "asyncio.run(main.main())\n"
)
"""The gateway with its record left out, to measure what the record costs."""
PEAK = (
    "import pathlib, re\n"
    "texts = [p.read_text() for p in pathlib.Path('/proc').glob('[0-9]*/status')]\n"
    "print(max(int(n) for t in texts for n in re.findall(r'VmHWM:\\s+(\\d+)', t)))\n"
)

Calls = list[dict[str, Any]]


@dataclass(frozen=True)
class Load:
    """Streams at once, calls of each, and what a call asks for (see inside/upstream.py)."""

    rounds: int
    streams: int = 1
    calls: int = 1
    stagger_s: float = 0.0
    prompt_chars: int = 20_000
    chunks: int = 1
    chars: int = 4
    rate: int = 0

    def order(self) -> dict[str, Any]:
        asked = json.dumps({"chunks": self.chunks, "chars": self.chars, "rate": self.rate})
        line = "def explore(path: str) -> None: print(path)\n"
        prompt = line * (self.prompt_chars // len(line)) + asked
        return {
            "body": {"model": MODEL, "messages": [{"role": "user", "content": prompt}]},
            "rounds": self.rounds,
            "streams": self.streams,
            "calls": self.calls,
            "stagger_s": self.stagger_s,
        }


@dataclass(frozen=True)
class Row:
    """A line of the table; `bound` is the largest `value` that passes, None: for information."""

    what: str
    direct: str
    gateway: str
    value: float
    shown: str
    bound: float | None = None
    bound_shown: str = ""

    @property
    def verdict(self) -> str:
        if self.bound is None:
            return ""
        return "PASS" if self.value <= self.bound else "over"


class Lab:
    """The containers: server, client, the gateway as it is and one that does not record."""

    def __init__(self, engine: Engine, stack: ExitStack) -> None:
        owner = Owner(f"bench-{secrets.token_hex(4)}", run="bench")
        built = image.ensure(engine, "gateway", say=tell)
        self.gateway = stack.enter_context(GatewayService(engine, built, owner, CALLS, Uplink()))
        assert self.gateway.uplink is not None
        uplink = Uplink(self.gateway.uplink.name)
        with mock.patch.object(service, "COMMAND", ("python", "-c", UNRECORDED)):
            other = GatewayService(engine, built, owner, CALLS, uplink)
            self.unrecorded = stack.enter_context(other)
        spec = ContainerSpec(
            built.id, owner.as_role("client"), LIMITS, network=self.gateway.uplink.id
        )
        self._client = stack.enter_context(Container(engine, spec))
        code = ("python", "-c", (INSIDE / "upstream.py").read_text())
        spec = ContainerSpec(
            built.id, owner.as_role("server"), LIMITS, network=self.gateway.uplink.id, command=code
        )
        upstream = stack.enter_context(Container(engine, spec))
        self.direct = {"host": upstream.name, "port": service.PORT, "token": "none"}
        for one in (self.gateway, self.unrecorded):
            one.use_ollama(f"http://{upstream.name}:{service.PORT}")

    @contextmanager
    def through(self, gateway: GatewayService) -> Iterator[dict[str, Any]]:
        """A target that is the gateway; what it recorded is looked at when the block is left."""
        assert self.gateway.uplink is not None
        access = gateway.open(
            run="bench", stage="s", turn=0, model=parse_reference(MODEL), seed=1,
            network=self.gateway.uplink,
        )  # fmt: skip
        host = gateway.container.name
        yield {"host": host, "port": service.PORT, "token": access.token}
        if gateway is self.gateway:
            bad = [call for call in gateway.close(access) if call.error]
            if bad:
                raise SystemExit(f"the gateway recorded an error: {bad[0].error}")

    def measure(self, load: Load, *targets: dict[str, Any]) -> list[list[Calls]]:
        """Rounds, in each the calls to every target. Ends the program where a reply was not
        whole: such a figure means nothing."""
        order = json.dumps(load.order() | {"targets": targets}).encode()
        client = ("python", "-c", (INSIDE / "client.py").read_text())
        ended = self._client.exec(client, timeout_s=MEASURE_S, stdin=order, log_kb=4096)
        if ended.exit_code != 0:
            raise SystemExit(f"the client failed: {ended.stderr.text}")
        rounds: list[list[Calls]] = json.loads(ended.raw_stdout)
        for call in (call for one in rounds for calls in one for call in calls):
            if not call["whole"] or call["lines"] != load.chunks + 1:
                raise SystemExit(f"a reply was not whole: {call}")
        return rounds


def first_byte(lab: Lab, what: str, load: Load, *, bound: bool) -> list[Row]:
    """Milliseconds until the first byte: of each round's calls the median and the 99th percentile,
    of these the difference between gateway and direct, of that the median over the rounds."""
    with lab.through(lab.gateway) as gateway:
        rounds = lab.measure(load, lab.direct, gateway)
    times = [[[call["first_s"] * 1e3 for call in calls] for calls in one] for one in rounds]
    found = []
    for name, of, limit in (("median", statistics.median, 5.0), ("p99", p99, 15.0)):
        pairs = [[of(calls) for calls in one] for one in times]
        direct, through = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
        added = statistics.median(through - direct for direct, through in pairs)
        found.append(
            Row(
                f"first byte, {what}, {name}",
                f"{direct:.1f} ms",
                f"{through:.1f} ms",
                added,
                f"+{added:.1f} ms",
                limit if bound else None,
                f"≤ {limit:g} ms",
            )
        )
    return found


def throughput(lab: Lab, what: str, load: Load, *, bound: bool) -> Row:
    """Chunks a second, by the ratio of each pair."""
    with lab.through(lab.gateway) as gateway:
        rounds = lab.measure(load, lab.direct, gateway)
    rates = [[load.chunks / calls[0]["total_s"] for calls in one] for one in rounds]
    share = statistics.median(through / direct for direct, through in rates) * 100
    direct, through = (statistics.median(pair[side] for pair in rates) for side in (0, 1))
    return Row(
        f"streaming, {what}", f"{direct:.0f}/s", f"{through:.0f}/s", -share, f"{share:.1f} %",
        -95.0 if bound else None, "≥ 95 %",
    )  # fmt: skip


def recording(lab: Lab, load: Load) -> Row:
    """Wall time of a call with the record against the same without, by the ratio of each pair."""
    with lab.through(lab.gateway) as kept, lab.through(lab.unrecorded) as left_out:
        rounds = lab.measure(load, left_out, kept)
    times = [[calls[0]["total_s"] * 1e3 for calls in one] for one in rounds]
    cost = (statistics.median(b / a for a, b in times) - 1) * 100
    without, with_it = (statistics.median(pair[side] for pair in times) for side in (0, 1))
    return Row(
        "recording (without, with)", f"{without:.0f} ms", f"{with_it:.0f} ms", cost,
        f"{cost:+.2f} %", 2.0, "≤ 2 %",
    )  # fmt: skip


def memory(lab: Lab, load: Load) -> Row:
    """The most that the gateway's process ever held, all measurements before included."""
    before = peak_mib(lab)
    with lab.through(lab.gateway) as gateway:
        lab.measure(load, gateway)
    peak = peak_mib(lab)
    return Row(
        "memory, 8 streams of 1 MB (before, peak)", f"{before:.0f} MiB", f"{peak:.0f} MiB", peak,
        f"{peak:.0f} MiB", 100.0, "≤ 100 MiB",
    )  # fmt: skip


def peak_mib(lab: Lab) -> float:
    ended = lab.gateway.container.exec(("python", "-c", PEAK), timeout_s=30)
    return int(ended.stdout.text) * 1024 / MIB


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[-1]


def rows(lab: Lab, rounds: int) -> Iterator[Row]:
    # At 25 tokens a second, a usual model's pace; 104 calls a round.
    steady = Load(rounds, streams=8, calls=13, stagger_s=0.025, chunks=5, rate=25)
    yield from first_byte(lab, "8 streams", steady, bound=True)
    burst = Load(rounds, streams=8, calls=13)
    yield from first_byte(lab, "8 without a pause", burst, bound=False)
    paced = Load(rounds, chunks=4000, rate=2000)
    yield throughput(lab, "2,000 chunks/s", paced, bound=True)
    yield throughput(lab, "as fast as it goes", Load(rounds, chunks=10_000), bound=False)
    yield recording(lab, Load(rounds * 2, prompt_chars=120_000, chunks=1000, rate=1000))
    yield memory(lab, Load(1, streams=8, chunks=10_000, chars=100))


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def cells(row: Row) -> tuple[str, ...]:
    bound = row.bound_shown if row.verdict else ""
    return (row.what, row.direct, row.gateway, row.shown, bound, row.verdict)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, choices=range(2, 101), metavar="2-100")
    chosen = parser.parse_args()
    engine = Engine.connect()
    found: list[Row] = []
    with ExitStack() as stack:
        lab = Lab(engine, stack)
        for row in rows(lab, chosen.rounds):
            tell(f"{row.what}: {row.shown} {row.verdict}")
            found.append(row)
    print(table(("", "direct", "gateway", "difference", "bound", ""), map(cells, found)))
    print(f"\nMedians of paired measurements, {chosen.rounds} rounds and more. {machine(engine)}")
    return int(any(row.verdict == "over" for row in found))


if __name__ == "__main__":
    sys.exit(main())
