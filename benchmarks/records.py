"""What the record of a run costs at 10,000 calls of 30,000 tokens: time and memory of each step.

Each step is a process of its own, so that its peak memory is its own. Nothing needs an engine.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.gateway.server.access import Access, Pins
from orchestrator.gateway.server.calls import Asked
from orchestrator.gateway.server.recorder import Recorder
from orchestrator.gateway.server.replay import Recording
from orchestrator.records.calls import CallRecord, loads_whole, usage_of
from orchestrator.records.stream import CallStream

STAGE_CALLS = 1000
"""Calls of one stage and turn, of which the gateway keeps a file."""
LINE = "    rows.append(dict(message_id=row[0], label=int(score > {n}.5)))\n"
TOKENS_A_LINE = 22


def _line(seq: int, tokens: int) -> dict[str, object]:
    prompt = "".join(LINE.format(n=seq + n) for n in range(tokens // TOKENS_A_LINE))
    return {
        "v": 1, "run": "r", "stage": f"s{seq // STAGE_CALLS}", "turn": 0,
        "seq": seq % STAGE_CALLS, "at": "2026-01-01T00:00:00+00:00", "endpoint": "chat",
        "model": "m", "upstream": "ollama", "pinned": {}, "reply": LINE * 40, "thinking": "",
        "request": {"model": "m", "messages": [{"role": "user", "content": prompt}]},
        "tool_calls": [], "done_reason": "stop", "prompt_tokens": tokens, "reply_tokens": 900,
        "reasoning_tokens": 0, "cached_tokens": 0, "tokens_estimated": False, "duration_s": 1.0,
        "timings": {"total_s": 1.0, "load_s": 0.0, "prompt_s": 0.5, "reply_s": 0.5},
        "first_token_s": 0.5, "attempts": [], "error": None,
    }  # fmt: skip


def _access(stage: int) -> Access:
    pins = Pins(num_ctx=32768, seed=1, max_reply_tokens=4000)
    return Access("t", "r", f"s{stage}", 0, "m", "replay", (), pins, file=f"calls-{stage}.jsonl")


def record(folder: Path, calls: int, tokens: int) -> int:
    """As the gateway: a line a call, a file a stage."""
    recorder = Recorder(folder / "gateway")
    accesses: dict[int, Access] = {}
    for seq in range(calls):
        stage = seq // STAGE_CALLS
        recorder.write(accesses.setdefault(stage, _access(stage)), _line(seq, tokens))
    return calls


def keep(folder: Path, calls: int, tokens: int) -> int:  # noqa: ARG001 - as all steps
    """As the orchestrator: each stage's file into the run's segments, closed at the end."""
    stream = CallStream(folder / "run")

    def of(file: Path) -> Iterator[CallRecord]:
        with file.open("rb") as lines:
            yield from (CallRecord.model_validate(loads_whole(line)) for line in lines)

    for stage in range(-(-calls // STAGE_CALLS)):
        stream.append(of(folder / "gateway" / f"calls-{stage}.jsonl"))
    stream.close_segment()
    return calls


def read(folder: Path, calls: int, tokens: int) -> int:
    """As whoever reads a record: each call, and what all of them used."""
    usage = usage_of(CallStream(folder / "run").read())
    assert usage.prompt_tokens == calls * tokens
    return usage.calls


def index(folder: Path, calls: int, tokens: int) -> int:  # noqa: ARG001 - as all steps
    """As a replay: the run's calls for the gateway, which looks up where each begins."""
    with (folder / "replay.jsonl").open("wb") as out:
        for call in CallStream(folder / "run").read():
            out.write(json.dumps(call.model_dump()).encode("ascii") + b"\n")
    return len(Recording(folder / "replay.jsonl"))


def look_up(folder: Path, calls: int, tokens: int) -> int:  # noqa: ARG001 - as all steps
    """Every call once, by its place; the look-up's index is made again before."""
    recording = Recording(folder / "replay.jsonl")
    asked = Asked("chat", "chat", {}, {})
    for seq in range(calls):
        access = _access(seq // STAGE_CALLS)
        access.calls = seq % STAGE_CALLS
        recording.call(access, asked)
    return calls


STEPS: tuple[Callable[[Path, int, int], int], ...] = (record, keep, read, index, look_up)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=30_000)
    parser.add_argument("--step", choices=[step.__name__ for step in STEPS])
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    if args.step:
        step = next(one for one in STEPS if one.__name__ == args.step)
        began = time.monotonic()
        assert step(args.folder, args.calls, args.tokens) == args.calls
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": time.monotonic() - began, "peak_mib": peak}))
        return
    print(f"{args.calls} calls of {args.tokens} tokens\n")
    print("| step | all | a call | peak memory |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="orch-bench-") as name:
        for step in STEPS:
            command = [sys.executable, __file__, "--step", step.__name__, "--folder", name]
            command += ["--calls", str(args.calls), "--tokens", str(args.tokens)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)
            each = found["seconds"] / args.calls * 1000
            print(
                f"| {step.__name__} | {found['seconds']:.1f} s | {each:.2f} ms "
                f"| {found['peak_mib']:.0f} MiB |"
            )
        for place in ("gateway", "run"):
            size = sum(path.stat().st_size for path in Path(name, place).iterdir())
            print(f"\non disk, {place}: {size / (1 << 20):.0f} MiB")


if __name__ == "__main__":
    main()
