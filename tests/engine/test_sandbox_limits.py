"""What closes a container holds; and with that one thing lifted it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from orchestrator.errors import GpuUnavailable, UnsafeOutput
from orchestrator.records.schema import Ending
from orchestrator.sandbox import volume
from orchestrator.sandbox.container import (
    Container,
    ContainerSpec,
    Gpu,
    Hardening,
    config,
    run_step,
)
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.exec import Ended
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.volume import Scratch

TIGHT = Limits(
    memory_mb=64, cpus=0.5, pids=16, wall_s=60, tmp_mb=4, shm_mb=1, nofile=32, fsize_mb=2
)
SOCKET = "/var/run/docker.sock"
STATUS = "print(open('/proc/self/status').read())"
DEVICES = {
    "console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr",
    "stdin", "stdout", "tty", "urandom", "zero",
}  # fmt: skip
WRITE_3_MB = "f = open({!r}, 'wb', 0)\nfor _ in range(3): f.write(bytes(1 << 20))"


@dataclass(frozen=True)
class Case:
    """A program, what shows that the limit held, and the same container with that lifted."""

    code: str
    held: Callable[[Ended], bool]
    lifted: Hardening = Hardening()  # noqa: RUF009 - frozen
    spec: dict[str, object] = field(default_factory=dict)
    """Fields of the spec that lift it, where hardening does not."""


def status(name: str, value: str) -> Callable[[Ended], bool]:
    return lambda ended: f"{name}:\t{value}\n" in ended.stdout.text


def says(*words: str) -> Callable[[Ended], bool]:
    return lambda ended: any(word in ended.stderr.text for word in words)


def printed(text: str) -> Callable[[Ended], bool]:
    return lambda ended: ended.stdout.text.strip() == text


QUOTA = """
import pathlib
root = pathlib.Path('/sys/fs/cgroup')
if (root / 'cpu.max').exists():
    quota, period = (root / 'cpu.max').read_text().split()
else:
    quota = (root / 'cpu/cpu.cfs_quota_us').read_text()
    period = (root / 'cpu/cpu.cfs_period_us').read_text()
print(0 if quota.strip() in ('max', '-1') else int(quota) / int(period))
"""
THREADS = """
import threading
gate = threading.Event()
try:
    for _ in range(40):
        threading.Thread(target=gate.wait).start()
finally:
    gate.set()
"""
CASES = {
    "not root": Case(
        "import os; print(os.getuid(), os.getgid(), os.getgroups())",
        printed("10001 10001 [10001]"),
        spec={"user": "0:0"},
    ),
    "no capability": Case(
        STATUS, status("CapBnd", "0000000000000000"), Hardening(drop_capabilities=False)
    ),
    "no new privileges": Case(
        STATUS, status("NoNewPrivs", "1"), Hardening(no_new_privileges=False)
    ),
    "system calls filtered": Case(
        STATUS,
        status("Seccomp", "2"),
        Hardening(host_config={"SecurityOpt": ["no-new-privileges", "seccomp=unconfined"]}),
    ),
    "read-only root": Case(
        "open('/var/tmp/x', 'w')", says("Read-only file system"), Hardening(read_only_root=False)
    ),
    "memory": Case(
        "b = bytearray(200 << 20)",
        lambda ended: ended.ending is Ending.OUT_OF_MEMORY,
        Hardening(memory=False),
    ),
    "processes": Case(THREADS, says("can't start new thread"), Hardening(pids=False)),
    "processor time": Case(QUOTA, printed("0.5"), Hardening(host_config={"NanoCpus": 0})),
    "files in /tmp": Case(
        "for n in range(5): open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))",
        says("No space left"),
        Hardening(host_config={"Tmpfs": {"/tmp": "size=64m,mode=1777"}}),
    ),
    "shared memory": Case(
        WRITE_3_MB.format("/dev/shm/x"),
        says("No space left"),
        Hardening(host_config={"ShmSize": 64 << 20, "Ulimits": []}),
    ),
    "one file": Case(WRITE_3_MB.format("/tmp/x"), says("File too large"), Hardening(ulimits=False)),
    "open files": Case(
        "f = [open('/dev/null') for _ in range(100)]",
        says("Too many open files"),
        Hardening(ulimits=False),
    ),
    "core dumps": Case(
        "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))",
        printed("(0, 0)"),
        Hardening(host_config={"Ulimits": [{"Name": "core", "Soft": 4096, "Hard": 4096}]}),
    ),
    "no engine socket": Case(
        f"import os; print(os.path.exists({SOCKET!r}))",
        printed("False"),
        Hardening(host_config={"Binds": [f"{SOCKET}:{SOCKET}"]}),
    ),
    "no device": Case(
        f"import os; print(set(os.listdir('/dev')) <= {DEVICES!r})",
        printed("True"),
        Hardening(
            host_config={
                "Devices": [
                    {
                        "PathOnHost": "/dev/zero",
                        "PathInContainer": "/dev/sda",
                        "CgroupPermissions": "r",
                    }
                ]
            }
        ),
    ),
    "no process of the host": Case(
        "import os; print(sum(name.isdigit() for name in os.listdir('/proc')) <= 4)",
        printed("True"),
        Hardening(host_config={"PidMode": "host"}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_holds_and_lifted_it_does_not(
    engine: Engine, tools: str, owner: Owner, name: str
) -> None:
    case = CASES[name]
    closed = ContainerSpec(tools, owner, TIGHT)
    opened = replace(closed, hardening=case.lifted, **case.spec)
    command = ("python3", "-I", "-c", case.code)
    ended = run_step(engine, closed, command)
    assert case.held(ended), ended
    ended = run_step(engine, opened, command)
    assert not case.held(ended), ended


def test_even_root_has_no_capability_inside(engine: Engine, tools: str, owner: Owner) -> None:
    ended = run_step(
        engine, ContainerSpec(tools, owner, TIGHT, user="0:0"), ("python3", "-c", STATUS)
    )
    assert status("CapEff", "0000000000000000")(ended)


FILL = ("dd", "if=/dev/zero", "of=/out/x", "bs=1M", "count=6")


def test_a_capped_volume_is_full_at_its_cap(engine: Engine, tools: str, owner: Owner) -> None:
    spec = ContainerSpec(tools, owner, replace_limits(fsize_mb=64))
    with Scratch(engine, owner.as_role("out"), tools, size_mb=4) as scratch:
        mounted = replace(spec, mounts=(scratch.volume.at("/out", read_only=False),))
        assert says("No space left")(run_step(engine, mounted, FILL))
        with pytest.raises(UnsafeOutput, match="more than 4 MiB"):
            scratch.put({"more": bytes(5 << 20)})
    plain = volume.create(engine, owner)
    try:
        mounted = replace(spec, mounts=(plain.at("/out", read_only=False),))
        assert run_step(engine, mounted, FILL).exit_code == 0
    finally:
        volume.remove(engine, plain)


def replace_limits(**fields: float) -> Limits:
    return Limits(**(TIGHT.model_dump() | fields))


def test_a_volume_mounted_read_only_can_not_be_written(
    engine: Engine, tools: str, owner: Owner
) -> None:
    made = volume.create(engine, owner)
    try:
        volume.fill(engine, tools, made, {"data.csv": b"1"}, owner)
        spec = ContainerSpec(tools, owner, TIGHT, mounts=(made.at("/data"),))
        write = ("sh", "-c", "echo 2 > /data/data.csv")
        assert says("Read-only file system")(run_step(engine, spec, write))
        opened = replace(spec, mounts=(made.at("/data", read_only=False),))
        assert run_step(engine, opened, write).exit_code == 0
    finally:
        volume.remove(engine, made)


@pytest.mark.parametrize(
    ("gpu", "wanted"),
    [
        (Gpu(), {"Driver": "nvidia", "Count": -1, "Capabilities": [["gpu"]]}),
        (Gpu(count=1), {"Driver": "nvidia", "Count": 1, "Capabilities": [["gpu"]]}),
        (Gpu(device_ids=("0",)), {"Driver": "nvidia", "DeviceIDs": ["0"], "Count": 0}),
        (Gpu("cdi"), {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}),
        (Gpu("cdi", device_ids=("nvidia.com/gpu=1",)), {"DeviceIDs": ["nvidia.com/gpu=1"]}),
    ],
)
def test_a_gpu_is_asked_for_as_the_engine_wants_it(
    engine: Engine, tools: str, owner: Owner, gpu: Gpu, wanted: dict[str, object]
) -> None:
    spec = ContainerSpec(tools, owner, TIGHT, gpu=gpu)
    made = engine.api.create_container_from_config(config(spec))["Id"]
    try:
        (request,) = engine.api.inspect_container(made)["HostConfig"]["DeviceRequests"]
    finally:
        engine.remove_container(made)
    assert request.items() >= wanted.items()


@pytest.mark.parametrize("gpu", [Gpu(), Gpu("cdi")])
def test_a_gpu_that_is_not_there_is_told_in_a_sentence(
    engine: Engine, tools: str, owner: Owner, gpu: Gpu
) -> None:
    info = engine.info()
    if "nvidia" in info.runtimes or info.cdi_devices:
        pytest.skip("this engine has a GPU")
    with (
        pytest.raises(GpuUnavailable, match="NVIDIA container toolkit"),
        Container(engine, ContainerSpec(tools, owner, TIGHT, gpu=gpu)),
    ):
        pass
