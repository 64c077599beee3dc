"""What the sandbox decides without an engine: streams, endings, errors, requests, archives."""

import base64
import io
import json
import random
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import (
    ContainerLost,
    EngineRefused,
    EngineUnavailable,
    GpuUnavailable,
    ImageMissing,
    NotEnoughSpace,
    OrchError,
)
from orchestrator.records.schema import Ending
from orchestrator.sandbox import archive
from orchestrator.sandbox.archive import Entry, entry_of, packed
from orchestrator.sandbox.container import ContainerSpec, Gpu, Hardening, Mount, config
from orchestrator.sandbox.engine import Engine, refusal, why_unreachable
from orchestrator.sandbox.exec import (
    Capture,
    Counters,
    Demux,
    Outcome,
    judge,
    parse_counters,
)
from orchestrator.sandbox.labels import Owner, new_name
from orchestrator.sandbox.limits import Limits


def frame(stream: int, payload: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


def test_a_runtime_is_asked_for_only_where_one_is_named() -> None:
    spec = ContainerSpec("image", Owner("t", role="step"))
    assert "Runtime" not in config(spec)["HostConfig"]
    assert config(replace(spec, runtime="runsc"))["HostConfig"]["Runtime"] == "runsc"


def test_frames_come_out_of_any_chunks() -> None:
    frames = [(1, b"out"), (2, b"err" * 50), (1, b""), (1, b"\x01\x00\x00\x00\x00\x00\x00\x09")]
    wire = b"".join(frame(*one) for one in frames)
    for size in (1, 2, 7, 8, 9, len(wire)):
        demux, got = Demux(), {1: b"", 2: b""}
        for at in range(0, len(wire), size):
            for stream, payload in demux.feed(wire[at : at + size]):
                got[stream] += payload
        assert got == {1: frames[0][1] + frames[3][1], 2: frames[1][1]}
        assert not demux.amid
        list(demux.feed(wire[:-1]))
        assert demux.amid


def capture(data: bytes, keep: int, chunk: int = 7) -> Capture:
    kept = Capture(keep)
    for at in range(0, len(data), chunk):
        kept.write(data[at : at + chunk])
    return kept


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_head_and_tail_are_kept_and_the_rest_is_counted(chunk: int) -> None:
    data = bytes(random.Random(0).choices(b"abcdefgh", k=1000))
    kept = capture(data, 100, chunk)
    found = kept.captured()
    assert found.total_bytes == 1000 and found.dropped_bytes == 900
    assert found.text == (data[:50] + b"\n[... 900 bytes left out ...]\n" + data[-50:]).decode()
    assert kept.raw() == data[:50] + data[-50:]


@pytest.mark.parametrize("size", [0, 1, 99, 100])
def test_what_fits_is_kept_whole(size: int) -> None:
    data = b"x" * size
    found = capture(data, 100).captured()
    assert (found.text, found.total_bytes, found.dropped_bytes) == (data.decode(), size, 0)


def test_a_cut_never_splits_a_character_and_the_count_stays_exact() -> None:
    for width, letter in ((2, "é"), (3, "€"), (4, "😀")):
        for shift in range(width):
            data = b"-" * shift + letter.encode() * 500
            found = capture(data, 100).captured()
            assert "\ufffd" not in found.text
            kept = len(found.text.replace(found.text.split("\n")[1], "").encode()) - 2
            assert kept + found.dropped_bytes == found.total_bytes == len(data)


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert capture(b"a\xff\xfeb", 100).captured().text == "a\ufffd\ufffdb"
    assert capture(b"\x80" * 300, 100).captured().dropped_bytes >= 200


DONE, FAILED = Outcome(0, False, 1.0), Outcome(1, False, 1.0)
KILLED, LATE = Outcome(137, False, 1.0), Outcome(None, True, 1.0)


@pytest.mark.parametrize(
    ("outcome", "oom_kills", "oom_flag", "running", "ending"),
    [
        (DONE, 0, False, True, Ending.EXITED),
        (FAILED, 0, False, True, Ending.EXITED),
        (FAILED, None, False, True, Ending.EXITED),
        (KILLED, 0, False, True, Ending.KILLED),
        (KILLED, None, False, True, Ending.KILLED),
        (KILLED, 1, False, True, Ending.OUT_OF_MEMORY),
        (KILLED, None, True, True, Ending.OUT_OF_MEMORY),
        (DONE, 2, False, True, Ending.OUT_OF_MEMORY),
        (DONE, 0, True, True, Ending.OUT_OF_MEMORY),
        (KILLED, None, True, False, Ending.OUT_OF_MEMORY),
        (KILLED, None, False, False, None),
        (DONE, 0, False, False, None),
        (LATE, 0, False, False, Ending.TIMEOUT),
        (LATE, 3, True, False, Ending.TIMEOUT),
    ],
)
def test_why_it_ended(
    outcome: Outcome, oom_kills: int | None, oom_flag: bool, running: bool, ending: Ending | None
) -> None:
    assert judge(outcome, oom_kills=oom_kills, oom_flag=oom_flag, running=running) is ending


@pytest.mark.parametrize(
    ("text", "counters"),
    [
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n67108864\n", Counters(3, 67108864)),
        ("low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 5\n4096\n", Counters(1, 4096)),
        ("", Counters(None, None)),
        ("OCI runtime exec failed: exec failed\n", Counters(None, None)),
    ],
)
def test_counters_of_both_cgroup_versions(text: str, counters: Counters) -> None:
    assert parse_counters(text) == counters


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (500, 'could not select device driver "" with capabilities: [[gpu]]', GpuUnavailable),
        (500, "CDI device injection failed: unresolvable CDI devices x", GpuUnavailable),
        (500, "write /volume/x: no space left on device", NotEnoughSpace),
        (404, "No such image: sha256:00", ImageMissing),
        (404, "No such container: x", ContainerLost),
        (404, "No such exec instance: x", ContainerLost),
        (409, "container x is not running", ContainerLost),
        (409, "remove x: volume is in use - [y]", EngineRefused),
        (500, "all predefined address pools have been fully subnetted", EngineRefused),
        (500, "anything else", EngineRefused),
    ],
)
def test_the_engines_words_become_our_errors(status: int, text: str, kind: type[OrchError]) -> None:
    error = refusal("do a thing", status, text)
    assert type(error) is kind
    assert text in str(error) and "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        ("PermissionError(13, 'Permission denied')", "usermod -aG docker"),
        ("FileNotFoundError(2, 'No such file or directory')", "install Docker"),
        ("ConnectionRefusedError(111, 'Connection refused')", "systemctl start docker"),
        ("Read timed out.", "Read timed out"),
    ],
)
def test_no_engine_names_the_mend(text: str, mend: str) -> None:
    assert mend in why_unreachable("unix:///x.sock", text)


def test_an_engine_whose_streams_can_not_be_steered_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://user@elsewhere")
    with pytest.raises(EngineUnavailable, match="forward its socket"):
        Engine.connect()


def test_a_container_is_closed_unless_told_otherwise() -> None:
    spec = ContainerSpec(
        "image",
        Owner("t", "r", "step"),
        Limits(memory_mb=64, cpus=1.5, pids=9, nofile=33, fsize_mb=7, tmp_mb=3, shm_mb=2),
        mounts=(Mount("v", "/v"), Mount("w", "/w", read_only=False)),
        env={"A": "b=c"},
        workdir="/w",
    )
    body = config(spec)
    host = body["HostConfig"]
    assert body["Cmd"] == ["/bin/sleep", "infinity"] and body["User"] == "10002:10002"
    assert body["Labels"] == {"orch.trial": "t", "orch.run": "r", "orch.role": "step"}
    assert body["Env"] == ["A=b=c"]
    assert host["NetworkMode"] == "none" and host["LogConfig"] == {"Type": "none"}
    assert host["CapDrop"] == ["ALL"] and host["SecurityOpt"] == ["no-new-privileges"]
    assert host["ReadonlyRootfs"] is True and host["Init"] is True
    assert host["Memory"] == host["MemorySwap"] == 64 << 20
    assert host["NanoCpus"] == 1_500_000_000 and host["PidsLimit"] == 9
    assert host["ShmSize"] == 2 << 20 and "size=3m" in host["Tmpfs"]["/tmp"]
    assert {cap["Name"]: (cap["Soft"], cap["Hard"]) for cap in host["Ulimits"]} == {
        "nofile": (33, 33),
        "fsize": (7 << 20, 7 << 20),
        "core": (0, 0),
    }
    assert [mount["ReadOnly"] for mount in host["Mounts"]] == [True, False]
    assert not {"Binds", "Devices", "DeviceRequests", "Privileged", "PortBindings"} & host.keys()
    json.dumps(body)


def test_a_command_of_its_own_runs_as_the_specs_user() -> None:
    body = config(ContainerSpec("i", Owner("t"), command=("serve",), workdir="/srv"))
    assert (body["Cmd"], body["User"], body["WorkingDir"]) == (["serve"], "10001:10001", "/srv")


@pytest.mark.parametrize(
    ("hardening", "gone"),
    [
        (Hardening(drop_capabilities=False), {"CapDrop"}),
        (Hardening(no_new_privileges=False), {"SecurityOpt"}),
        (Hardening(read_only_root=False), {"ReadonlyRootfs"}),
        (Hardening(memory=False), {"Memory", "MemorySwap"}),
        (Hardening(pids=False), {"PidsLimit"}),
        (Hardening(ulimits=False), {"Ulimits"}),
    ],
)
def test_hardening_lifts_one_thing_each(hardening: Hardening, gone: set[str]) -> None:
    closed = config(ContainerSpec("i", Owner("t")))["HostConfig"]
    opened = config(ContainerSpec("i", Owner("t"), hardening=hardening))["HostConfig"]
    assert closed.keys() - opened.keys() == gone
    assert all(closed[name] == opened[name] for name in opened)


def test_gpus_as_the_engine_wants_them() -> None:
    assert Gpu().requests() == [{"Driver": "nvidia", "Capabilities": [["gpu"]], "Count": -1}]
    assert Gpu("cdi").requests() == [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]


def header(mode: int, size: int = 0, link: str = "") -> str:
    about = {"name": "x", "size": size, "mode": mode, "linkTarget": link}
    return base64.b64encode(json.dumps(about).encode()).decode()


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        (0o644, "file"),
        (1 << 31 | 0o755, "directory"),
        (1 << 27 | 0o777, "symlink"),
        (1 << 26 | 0o666, "other"),
        (1 << 26 | 1 << 21 | 0o666, "other"),
        (1 << 25 | 0o644, "other"),
        (1 << 24 | 0o755, "other"),
        (1 << 23 | 0o755, "file"),
    ],
)
def test_what_the_engine_says_lies_there(mode: int, kind: str) -> None:
    assert entry_of(header(mode, 7, "/t")) == Entry(kind, 7, mode & 0o777, "/t")  # type: ignore[arg-type]


def test_an_archive_is_the_same_each_time_and_all_the_sandboxs(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"12")
    files: dict[str, bytes | Path] = {"b/c": tmp_path / "large", "a": b"1"}
    with packed(files, uid=10001, mode=0o600, below="v") as one:
        first = one.read()
    with packed(dict(reversed(files.items())), uid=10001, mode=0o600, below="v") as two:
        assert two.read() == first
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == ["v", "v/a", "v/b", "v/b/c"]
    assert [member.mode for member in members] == [0o755, 0o600, 0o755, 0o600]
    assert {(member.uid, member.gid) for member in members} == {(10001, 10001)}
    # Earlier than this a zip can't say.
    assert {member.mtime for member in members} == {archive.STAMP}


@pytest.mark.parametrize("path", ["", "/a", "../a", "a/../../b", ".", "a\0"])
def test_a_path_that_is_not_inside_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a path inside"):
        archive.relative(path)


def test_names_are_made_of_the_role_and_never_the_same() -> None:
    assert new_name("Hold Out/../x").startswith("orch-hold-out-x-")
    assert new_name("").startswith("orch-step-")
    assert len({new_name("a") for _ in range(100)}) == 100
    assert len(new_name("r" * 200)) < 64
