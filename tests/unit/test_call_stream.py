"""The calls of a run on disk: segments, half lines, and no more than a line in memory."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from orchestrator.errors import RecordUnreadable
from orchestrator.records.calls import CallRecord
from orchestrator.records.stream import CallStream


def call(seq: int, reply: str = "Yes.") -> CallRecord:
    return CallRecord(
        run="r",
        stage="explore",
        turn=0,
        seq=seq,
        at="2026-01-01T00:00:00+00:00",
        endpoint="chat",
        model="m",
        upstream="ollama",
        request={"model": "m", "messages": [{"role": "user", "content": "half \ud83d"}]},
        pinned={},
        reply=reply,
        prompt_tokens=10,
        duration_s=2.0,
    )


def numbers(folder: Path) -> list[int]:
    return [one.seq for one in CallStream(folder).read()]


def names(folder: Path) -> list[str]:
    return [path.name for path in CallStream(folder).files()]


def test_calls_come_back_as_they_were_from_open_and_closed_segments(tmp_path: Path) -> None:
    stream = CallStream(tmp_path)
    stream.append([call(0), call(1)])
    stream.close_segment()
    stream.append([call(2)])
    assert names(tmp_path) == ["calls-0001.jsonl.gz", "calls.jsonl"]
    assert list(CallStream(tmp_path).read()) == [call(0), call(1), call(2)]
    stream.close_segment()
    assert names(tmp_path) == ["calls-0001.jsonl.gz", "calls-0002.jsonl.gz"]
    assert numbers(tmp_path) == [0, 1, 2]
    assert stream.notes == []


def test_a_folder_without_calls_has_none(tmp_path: Path) -> None:
    CallStream(tmp_path / "none").close_segment()
    assert numbers(tmp_path / "none") == []


def test_a_segment_that_has_grown_is_closed(tmp_path: Path) -> None:
    stream = CallStream(tmp_path, segment_bytes=1000)
    for seq in range(6):
        stream.append([call(seq)])
    assert [name for name in names(tmp_path) if name.endswith(".gz")] == names(tmp_path)
    assert len(names(tmp_path)) == 3
    assert numbers(tmp_path) == list(range(6))


def test_half_a_last_line_is_passed_over_and_told(tmp_path: Path) -> None:
    CallStream(tmp_path).append([call(0), call(1)])
    path = tmp_path / "calls.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    stream = CallStream(tmp_path)
    assert [one.seq for one in stream.read()] == [0]
    (note,) = stream.notes
    assert str(path) in note
    assert "breaks off" in note


def test_a_last_line_that_lacks_its_newline_only_is_whole(tmp_path: Path) -> None:
    CallStream(tmp_path).append([call(0)])
    path = tmp_path / "calls.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    assert numbers(tmp_path) == [0]


def test_what_is_appended_after_half_a_line_is_not_glued_to_it(tmp_path: Path) -> None:
    stream = CallStream(tmp_path)
    stream.append([call(0), call(1)])
    path = tmp_path / "calls.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    stream.append([call(2)])
    assert numbers(tmp_path) == [0, 2]


@pytest.mark.parametrize(
    ("line", "says"),
    [(b"{half\n", "line 1: not a JSON line"), (b'{"v": 1}\n', "line 1: run: Field required")],
)
def test_any_other_broken_line_is_named(tmp_path: Path, line: bytes, says: str) -> None:
    (tmp_path / "calls.jsonl").write_bytes(line)
    with pytest.raises(RecordUnreadable, match=says):
        numbers(tmp_path)


@pytest.mark.parametrize("moment", ["renamed", "compressed"])
def test_a_crash_while_a_segment_is_closed_loses_and_doubles_nothing(
    tmp_path: Path, moment: str
) -> None:
    CallStream(tmp_path).append([call(0)])
    plain = (tmp_path / "calls.jsonl").rename(tmp_path / "calls-0001.jsonl")
    (tmp_path / ".calls-0001.jsonl.gz.0123.tmp").write_bytes(b"half")
    if moment == "compressed":
        (tmp_path / "calls-0001.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert numbers(tmp_path) == [0]
    stream = CallStream(tmp_path)
    stream.append([call(1)])
    stream.close_segment()
    assert numbers(tmp_path) == [0, 1]
    assert all(name.endswith(".gz") for name in names(tmp_path))


def test_many_long_calls_are_written_closed_and_read_a_line_at_a_time(tmp_path: Path) -> None:
    reply = "word " * 20_000
    stream = CallStream(tmp_path, segment_bytes=4 << 20)
    tracemalloc.start()
    try:
        for seq in range(150):
            stream.append([call(seq, reply)])
        stream.close_segment()
        total = sum(len(one.reply) for one in stream.read())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == 150 * len(reply) == 15_000_000
    assert peak < 5_000_000
