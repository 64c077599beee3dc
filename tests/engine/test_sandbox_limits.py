"""Limits of single containers and volumes; the scorer's, all of them, are in cage.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.errors import GpuUnavailable, UnsafeOutput
from orchestrator.sandbox import volume
from orchestrator.sandbox.container import (
    Container,
    ContainerSpec,
    Gpu,
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
STATUS = "print(open('/proc/self/status').read())"


def status(name: str, value: str) -> Callable[[Ended], bool]:
    return lambda ended: f"{name}:\t{value}\n" in ended.stdout.text


def says(*words: str) -> Callable[[Ended], bool]:
    return lambda ended: any(word in ended.stderr.text for word in words)


def test_even_root_has_no_capability_inside(engine: Engine, tools: str, owner: Owner) -> None:
    ended = run_step(
        engine, ContainerSpec(tools, owner, TIGHT, user="0:0"), ("python3", "-c", STATUS)
    )
    assert status("CapEff", "0000000000000000")(ended)


FILL = ("dd", "if=/dev/zero", "of=/out/x", "bs=1M", "count=6")


def test_a_capped_volume_is_full_at_its_cap(engine: Engine, tools: str, owner: Owner) -> None:
    spec = ContainerSpec(tools, owner, replace_limits(fsize_mb=64))
    with Scratch(engine, owner, tools, {"out": 4}) as scratch:
        mounted = replace(spec, mounts=(scratch.volume("out").at("/out", read_only=False),))
        assert says("No space left")(run_step(engine, mounted, FILL))
        with pytest.raises(UnsafeOutput, match="more than 4 MiB"):
            scratch.put("out", {"more": bytes(5 << 20)})
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
