"""Commands in containers: streams, deadlines, and why they ended."""

from __future__ import annotations

import os
import resource
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.errors import ContainerLost
from orchestrator.records.schema import Ending
from orchestrator.sandbox import exec as execution
from orchestrator.sandbox.container import KEEPER_USER, Container, ContainerSpec, run_step
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.exec import Ended, Usage
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.volume import Scratch

SMALL = Limits(memory_mb=64, cpus=1, pids=32, wall_s=60, tmp_mb=128, log_kb=16)
EAT = "b = bytearray(200 << 20)"


@pytest.fixture
def spec(tools: str, owner: Owner) -> ContainerSpec:
    return ContainerSpec(tools, owner, SMALL)


def python(engine: Engine, spec: ContainerSpec, code: str, **options: float) -> Ended:
    return run_step(engine, spec, ("python3", "-I", "-c", code), **options)


def test_streams_code_input_environment_and_folder(engine: Engine, spec: ContainerSpec) -> None:
    with Container(engine, spec) as container:
        ended = container.exec(
            ("sh", "-c", 'pwd; echo "$WORD"; wc -c; echo oops >&2; exit 3'),
            timeout_s=60,
            env={"WORD": "héllo"},
            stdin=b"x" * 3_000_000,
            workdir="/tmp",
        )
    assert ended.ending is Ending.EXITED and ended.exit_code == 3
    assert ended.stdout.text == "/tmp\nhéllo\n3000000\n"
    assert ended.stderr.text == "oops\n"
    assert ended.oom_kills == 0
    assert ended.peak_memory_bytes is not None
    assert 0 < ended.peak_memory_bytes <= 64 << 20


def test_input_that_is_never_read_holds_nothing_up(engine: Engine, spec: ContainerSpec) -> None:
    assert run_step(engine, spec, ("true",), stdin=b"x" * 5_000_000).exit_code == 0


def test_a_program_that_is_missing_has_an_ending_too(engine: Engine, spec: ContainerSpec) -> None:
    ended = run_step(engine, spec, ("no-such-program",))
    assert ended.ending is Ending.EXITED and ended.exit_code in (126, 127)
    assert "no-such-program" in ended.stdout.text + ended.stderr.text


def test_200_mb_of_output_in_flat_memory(engine: Engine, spec: ContainerSpec) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ended = run_step(
        engine,
        spec,
        ("sh", "-c", "echo first; head -c 200000000 /dev/zero | tr '\\0' x; echo last"),
    )
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert ended.stdout.total_bytes == 200_000_011
    assert ended.stdout.dropped_bytes == 200_000_011 - 16 * 1024
    assert ended.stdout.text.startswith("first\nxxx")
    assert ended.stdout.text.endswith("xxxlast\n")
    assert "[... 199983627 bytes left out ...]" in ended.stdout.text
    assert grown_kb < 16 * 1024


def test_a_sink_gets_every_byte_exactly(engine: Engine, spec: ContainerSpec) -> None:
    got = bytearray()
    code = "import sys; [sys.stdout.buffer.write(bytes(range(256)) * 64) for _ in range(200)]"
    with Container(engine, spec) as container:
        ended = container.exec(("python3", "-c", code), timeout_s=60, sink=got.extend)
    assert bytes(got) == bytes(range(256)) * 64 * 200
    assert ended.stdout.dropped_bytes > 0


def test_what_a_sink_raises_comes_back_after_the_end(engine: Engine, spec: ContainerSpec) -> None:
    def full(data: bytes) -> None:
        raise OSError("disk full")

    with Container(engine, spec) as container:
        with pytest.raises(OSError, match="disk full"):
            container.exec(("echo", "x"), timeout_s=60, sink=full)
        assert container.exec(("echo", "y"), timeout_s=60).raw_stdout == b"y\n"


def test_a_reader_that_stalls_does_not_make_the_kill_hang(
    engine: Engine, spec: ContainerSpec
) -> None:
    go_on = threading.Event()
    with Container(engine, spec) as container:
        ended = container.exec(("yes",), timeout_s=1, sink=lambda data: go_on.wait(60))
        go_on.set()
        assert ended.ending is Ending.TIMEOUT
        assert not container.running


def test_a_child_that_holds_the_output_is_not_waited_for(
    engine: Engine, spec: ContainerSpec
) -> None:
    with Container(engine, spec) as container:
        ended = container.exec(("sh", "-c", "sleep 600 & echo $!; exit 3"), timeout_s=500, log_kb=8)
        assert (ended.ending, ended.exit_code) == (Ending.EXITED, 3)
        # It lives on, and with it the stream: the end was not taken from there.
        alive = container.exec(("sh", "-c", f"kill -0 {ended.stdout.text}"), timeout_s=60)
        assert alive.exit_code == 0


def test_a_deadline_kills_also_who_ignores_signals(engine: Engine, spec: ContainerSpec) -> None:
    code = (
        "import signal, time\n"
        "for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)"
        "\nprint('deaf', flush=True)\nwhile True: time.sleep(1)"
    )
    with Container(engine, spec) as container:
        ended = container.exec(("python3", "-c", code), timeout_s=1)
        assert not container.running
    assert ended.ending is Ending.TIMEOUT and ended.exit_code is None
    assert ended.stdout.text == "deaf\n"
    assert ended.peak_memory_bytes is not None


def test_nobody_is_left_of_a_double_fork(engine: Engine, spec: ContainerSpec) -> None:
    mark = f"mark-{spec.owner.trial}"
    code = (
        "import os, sys, time\n"
        "if os.fork(): sys.exit()\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "while True: time.sleep(1)"
    )

    def living() -> bool:
        for commands in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if mark.encode() in commands.read_bytes():
                    return True
            except OSError:
                continue
        return False

    with Container(engine, spec) as container:
        assert container.exec(("python3", "-c", code, mark), timeout_s=60).exit_code == 0
        assert living()
    assert not living()


def test_out_of_memory(engine: Engine, spec: ContainerSpec) -> None:
    ended = python(engine, spec, EAT)
    assert ended.ending is Ending.OUT_OF_MEMORY
    assert ended.exit_code == 137
    assert ended.oom_kills == 1


def test_out_of_memory_in_a_child_counts_whatever_the_parent_says(
    engine: Engine, spec: ContainerSpec
) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {EAT!r}])"
    ended = python(engine, spec, code)
    assert ended.ending is Ending.OUT_OF_MEMORY
    assert ended.exit_code == 0


def test_memory_is_charged_to_the_command_that_used_it_up(
    engine: Engine, spec: ContainerSpec
) -> None:
    with Container(engine, spec) as container:
        endings = [
            container.exec(("python3", "-c", code), timeout_s=60).ending
            for code in ("pass", EAT, "pass", EAT)
        ]
    assert endings == [Ending.EXITED, Ending.OUT_OF_MEMORY] * 2


def test_memory_full_to_the_brim_is_no_fault(
    engine: Engine, spec: ContainerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = ("dd", "if=/dev/zero", "of=/tmp/full", "bs=64K", "count=996")
    ended = run_step(engine, spec, fill)
    assert (ended.ending, ended.exit_code, ended.oom_kills) == (Ending.EXITED, 0, 0)
    # Without room of its own the reading of the counters is what breaks it:
    monkeypatch.setattr(execution, "usage", lambda *_: Usage(0, 0))
    assert run_step(engine, spec, fill).ending is Ending.OUT_OF_MEMORY


def test_files_that_used_up_the_memory_are_out_of_memory(
    engine: Engine, spec: ContainerSpec
) -> None:
    ended = run_step(engine, spec, ("dd", "if=/dev/zero", "of=/tmp/full", "bs=1M"))
    assert ended.ending is Ending.OUT_OF_MEMORY
    assert ended.oom_kills is not None and ended.oom_kills > 0


def test_a_signal_of_its_own_making_is_no_lack_of_memory(
    engine: Engine, spec: ContainerSpec
) -> None:
    ended = run_step(engine, spec, ("sh", "-c", "kill -9 $$"))
    assert (ended.ending, ended.exit_code, ended.oom_kills) == (Ending.KILLED, 137, 0)


def test_processes_up_to_the_limit_hide_nothing(engine: Engine, spec: ContainerSpec) -> None:
    code = (
        "import os, time\n"
        "try:\n"
        "    while True:\n"
        "        if not os.fork():\n"
        "            os.close(1); os.close(2); time.sleep(600)\n"
        "except BlockingIOError:\n"
        "    os._exit(7)\n"
    )
    ended = python(engine, spec, code)
    assert (ended.ending, ended.exit_code) == (Ending.EXITED, 7)
    # Read although there is room for no process more.
    assert ended.oom_kills == 0


KILL_ALL = (
    "import os, signal, time\nif os.fork():\n    time.sleep(600)\nos.kill(-1, signal.SIGKILL)\n"
)


def test_killing_all_it_can_does_not_end_the_container(engine: Engine, spec: ContainerSpec) -> None:
    with Container(engine, spec) as container:
        assert container.exec(("python3", "-c", KILL_ALL), timeout_s=60).ending is Ending.KILLED
        assert container.running
        # As the user whose idle process keeps the container it would:
        with pytest.raises(ContainerLost):
            container.exec(("python3", "-c", KILL_ALL), timeout_s=60, user=KEEPER_USER)


@pytest.mark.parametrize("how", ["kill", "stop", "remove"])
def test_a_container_that_others_end_is_lost(engine: Engine, spec: ContainerSpec, how: str) -> None:
    with Container(engine, spec) as container:

        def end(data: bytes) -> None:
            if how == "kill":
                engine.api.kill(container.id)
            elif how == "stop":
                engine.api.stop(container.id, timeout=0)
            else:
                engine.api.remove_container(container.id, force=True)

        with pytest.raises(ContainerLost):
            container.exec(("sh", "-c", "echo go; sleep 600"), timeout_s=500, sink=end)


def test_a_container_that_ends_with_its_memory_full_is_lost_and_nothing_refused(
    engine: Engine, spec: ContainerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the kernel ends for memory may be the idle process, just before limits are raised."""
    monkeypatch.setattr(execution, "usage", lambda *_: Usage(memory_bytes=64 << 20, pids=1))
    with Container(engine, spec) as container, pytest.raises(ContainerLost):
        container.exec(
            ("sh", "-c", "echo go; sleep 600"),
            timeout_s=500,
            sink=lambda _: engine.api.kill(container.id),
        )


def test_a_container_that_we_end_is_not_lost(engine: Engine, spec: ContainerSpec) -> None:
    with Container(engine, spec) as container:
        ended = container.exec(
            ("sh", "-c", "echo go; sleep 600"), timeout_s=500, sink=lambda _: container.stop()
        )
    assert ended.ending is Ending.KILLED


def test_ctrl_c_in_the_middle_leaves_nothing(engine: Engine, spec: ContainerSpec) -> None:
    def interrupt(data: bytes) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), Container(engine, spec) as container:
        container.exec(("sh", "-c", "echo go; sleep 600"), timeout_s=500, sink=interrupt)
    assert engine.owned(spec.owner.trial) == []


def test_four_threads_at_once_each_get_their_own(engine: Engine, spec: ContainerSpec) -> None:
    def one(number: int) -> tuple[str, int | None]:
        ended = run_step(
            engine, spec, ("sh", "-c", f"seq {number} 9999 | tail -n +1; exit {number}")
        )
        return ended.stdout.text[:6], ended.exit_code

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, range(10, 18)))
    assert found == [(f"{n}\n{n + 1}\n", n) for n in range(10, 18)]


def test_what_path_names_first_takes_no_part_in_the_evidence(
    engine: Engine, tools: str, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = {"cat": b"#!/bin/sh\necho oom_kill 5\n", "sleep": b"#!/bin/sh\nexit 0\n"}
    with Scratch(engine, owner, tools, {"bin": 1}) as scratch:
        scratch.put("bin", forged, mode=0o755)
        mounts = (scratch.volume("bin").at("/env"),)
        spec = ContainerSpec(tools, owner, SMALL, mounts=mounts, env={"PATH": "/env:/bin"})
        ended = run_step(engine, spec, ("true",))
        assert (ended.ending, ended.oom_kills) == (Ending.EXITED, 0)
        monkeypatch.setattr(execution, "COUNTERS", ("cat", *execution.COUNTERS[1:]))
        assert run_step(engine, spec, ("true",)).ending is Ending.OUT_OF_MEMORY
