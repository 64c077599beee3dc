"""The list of cage.py inside real scorer containers; and with each limit removed, when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import cage
import pytest
from scoring_lab import OUTPUTS, Lab, images, lab

from orchestrator.records.failures import FailureClass
from orchestrator.sandbox import network
from orchestrator.sandbox.container import Container, ContainerSpec, Hardening
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.volume import Scratch
from orchestrator.scoring import steps
from orchestrator.scoring.runtime import input_volume
from orchestrator.scoring.steps import StepResult, Workplace, environment_of
from orchestrator.task import Step

CAPS = cage.CAPS
LIMITS = Limits(
    memory_mb=CAPS["memory"],
    cpus=CAPS["cpus"],
    pids=CAPS["pids"],
    wall_s=60,
    tmp_mb=CAPS["tmp"],
    shm_mb=CAPS["shm"],
    work_mb=CAPS["work"],
    output_mb=CAPS["out"],
    nofile=cage.OPEN_FILES,
    fsize_mb=CAPS["file"],
)
SOCKET = "/var/run/docker.sock"
Lift = Callable[[ContainerSpec], ContainerSpec]


@pytest.fixture(scope="module")
def bench(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    found = lab(engine, tmp_path_factory.mktemp("cage"), LIMITS)
    yield found
    assert engine.owned(found.bench.owner.trial) == []


@pytest.fixture(scope="module")
def place(bench: Lab) -> Iterator[Workplace]:
    with workplace(bench) as made:
        yield made


def workplace(bench: Lab) -> Workplace:
    files = {"cage.py": Path(cage.__file__).read_bytes()}
    return Workplace(bench.bench, files, environment_of(bench.bench, {}), outputs=OUTPUTS)


def attempt(bench: Lab, place: Workplace, *program: str, wall_s: float | None = None) -> StepResult:
    """One step, run as a submission's program is."""
    # It names {output}, so that the folder for it is there.
    command = ("env", "OUTPUT={output}", "python3", *program)
    step = Step(name="predict", command=command, needs_input=True, wall_s=wall_s)
    return place.run(step, input_volume(bench.bench, bench.holdout.features), None)


def broken(result: StepResult) -> dict[str, str]:
    """Assertion → what is wrong, as the program said."""
    rows = [line.split("\t") for line in result.record.stdout.text.splitlines()]
    return {row[0]: row[1] for row in rows}


@pytest.fixture(scope="module")
def closed(bench: Lab, place: Workplace) -> dict[str, str]:
    return broken(attempt(bench, place, "cage.py"))


@pytest.mark.parametrize("name", cage.ASSERTIONS)
def test_it_holds_in_a_scorer(closed: dict[str, str], name: str) -> None:
    assert closed[name] == ""


def hardened(**fields: object) -> Lift:
    return lambda spec: replace(spec, hardening=Hardening(**fields))  # type: ignore[arg-type]


def host(**fields: object) -> Lift:
    return hardened(host_config=fields)


def writable(spec: ContainerSpec) -> ContainerSpec:
    mounts = tuple(replace(mount, read_only=False) for mount in spec.mounts)
    return replace(spec, mounts=mounts)


DEVICE = {"PathOnHost": "/dev/zero", "PathInContainer": "/dev/sda", "CgroupPermissions": "r"}
CORE = {"Name": "core", "Soft": 4096, "Hard": 4096}
LIFTS: dict[str, tuple[Lift, set[str]]] = {
    "user": (lambda spec: replace(spec, user="0:0"), {"not_root"}),
    "capabilities": (hardened(drop_capabilities=False), {"no_capability"}),
    "privileges": (hardened(no_new_privileges=False), {"no_new_privileges"}),
    "seccomp": (
        host(SecurityOpt=["no-new-privileges", "seccomp=unconfined"]),
        {"system_calls_filtered"},
    ),
    "root": (hardened(read_only_root=False), {"no_other_place_to_write"}),
    "mounts": (writable, {"data_read_only", "no_other_place_to_write"}),
    "devices": (host(Devices=[DEVICE]), {"no_device"}),
    "socket": (host(Binds=[f"{SOCKET}:{SOCKET}"]), {"no_engine_socket"}),
    "masks": (host(MaskedPaths=[], ReadonlyPaths=[]), {"proc_masked"}),
    "process space": (host(PidMode="host"), {"no_process_of_the_host"}),
    "memory": (hardened(memory=False), {"memory"}),
    "processes": (hardened(pids=False), {"processes", "threads"}),
    "processor": (host(NanoCpus=0), {"processor_time"}),
    "/tmp": (host(Tmpfs={"/tmp": "size=64m,mode=1777"}), {"disk_of_tmp"}),
    "shared memory": (host(ShmSize=64 * cage.MIB), {"shared_memory"}),
    "ulimits": (hardened(ulimits=False), {"size_of_a_file", "open_files"}),
    "core dumps": (host(Ulimits=[CORE]), {"no_core_dump"}),
}


@pytest.mark.parametrize("name", LIFTS)
def test_without_the_limit_it_fails(
    bench: Lab, place: Workplace, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lift, names = LIFTS[name]
    monkeypatch.setattr(
        steps, "ContainerSpec", lambda *a, **given: lift(ContainerSpec(*a, **given))
    )
    wrong = broken(attempt(bench, place, "cage.py", *names))
    assert wrong.keys() == names
    assert all(wrong.values()), wrong


def test_without_a_closed_network_it_fails(
    engine: Engine, bench: Lab, place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"no_route", "no_name_server"}
    with network.internal(engine, bench.bench.owner) as net:
        monkeypatch.setattr(
            steps,
            "ContainerSpec",
            lambda *a, **given: replace(ContainerSpec(*a, **given), network=net.name),
        )
        wrong = broken(attempt(bench, place, "cage.py", *names))
    assert wrong.keys() == names
    assert all(wrong.values()), wrong


def test_without_capped_volumes_it_fails(bench: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"disk_of_workspace", "disk_of_output"}
    monkeypatch.setattr(
        steps,
        "Scratch",
        lambda engine, owner, image, sizes: Scratch(
            engine, owner, image, {name: size * 8 for name, size in sizes.items()}
        ),
    )
    with workplace(bench) as roomy:
        wrong = broken(attempt(bench, roomy, "cage.py", *names))
    assert wrong.keys() == names
    assert all(wrong.values()), wrong


def test_every_assertion_is_seen_to_fail() -> None:
    elsewhere = {"no_route", "no_name_server", "disk_of_workspace", "disk_of_output"}
    assert set().union(*(names for _, names in LIFTS.values())) | elsewhere == set(cage.ASSERTIONS)


@pytest.mark.parametrize("held", [True, False])
def test_a_setuid_program_gains_nothing(engine: Engine, owner: Owner, held: bool) -> None:
    image = images(engine).scorer.id
    hardening = Hardening(read_only_root=False, no_new_privileges=held)
    plant = "cp /usr/bin/id /var/tmp/gain && chmod 4755 /var/tmp/gain"
    gain = ("/var/tmp/gain", "-u")
    with Container(engine, ContainerSpec(image, owner, LIMITS, hardening=hardening)) as container:
        planted = container.exec(("sh", "-c", plant), timeout_s=30, user="0:0")
        assert planted.exit_code == 0, planted.stderr.text
        assert container.exec(gain, timeout_s=30).stdout.text.strip() == ("10001" if held else "0")


def test_a_fork_bomb_is_contained_and_ends_with_its_container(bench: Lab, place: Workplace) -> None:
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except BlockingIOError: pass\n"
    result = attempt(bench, place, "-c", bomb, wall_s=1.5)
    assert result.failure is not None
    assert result.failure.failure_class is FailureClass.TIMEOUT
    assert result.record.duration_s < 30
