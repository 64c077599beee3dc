import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.errors import RecordNotFound, RecordUnreadable, RecordUnwritable
from orchestrator.records.schema import AgentStage, RunRecord, RunSpec, RunStatus, Usage
from orchestrator.records.store import TrialStore, list_trials, open_trial, write_atomic

SPEC = RunSpec(run_id="a-01", model="a", index=0, seed=3)


def stage(tokens: int) -> AgentStage:
    return AgentStage(
        name="explore",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        duration_s=1.0,
        tree="0" * 40,
        usage=Usage(calls=1, prompt_tokens=tokens),
    )


def test_a_run_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    store = TrialStore(tmp_path / "t")
    record = RunRecord(spec=SPEC, status=RunStatus.FINISHED, stages=[stage(5), stage(7)])
    store.save_run(record)
    again = store.load_run("a-01")
    assert again == record
    assert again.usage.prompt_tokens == 12
    assert again.usage.calls == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not one JSON document"),
        (b'{"schema_version": 1, "spec', "not one JSON document"),
        (b"{}{}", "not one JSON document"),
        (b"[]", "schema_version is None"),
        (b'{"schema_version": 99}', "schema_version is 99"),
        (b'{"schema_version": 1, "spec": {}, "surprise": 1}', "spec.run_id"),
    ],
)
def test_a_broken_record_is_named_with_its_fault(tmp_path: Path, content: bytes, says: str) -> None:
    store = TrialStore(tmp_path / "t")
    path = store.run_folder("a-01") / "run.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(RecordUnreadable, match=says) as caught:
        store.load_run("a-01")
    assert str(path) in str(caught.value)


def test_a_failed_write_leaves_the_old_record_and_no_stray_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    write_atomic(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordUnwritable, match="No space"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_runs_come_in_plan_order_and_unstarted_ones_as_planned(tmp_path: Path) -> None:
    store = TrialStore(tmp_path / "t")
    other = SPEC.model_copy(update={"run_id": "b-01"})
    store.save_run(RunRecord(spec=other, status=RunStatus.FINISHED))
    statuses = [(r.spec.run_id, r.status) for r in store.runs([SPEC, other])]
    assert statuses == [("a-01", RunStatus.PLANNED), ("b-01", RunStatus.FINISHED)]


def make_trial(runs: Path, name: str) -> None:
    write_atomic(runs / name / "trial.json", b"{}")


def test_a_trial_is_found_by_name_prefix_folder_and_latest(tmp_path: Path) -> None:
    make_trial(tmp_path, "spam-1")
    make_trial(tmp_path, "jobs-1")
    assert open_trial(tmp_path, "spam").trial_id == "spam-1"
    assert open_trial(tmp_path, str(tmp_path / "spam-1")).trial_id == "spam-1"
    assert open_trial(tmp_path, "latest").trial_id == list_trials(tmp_path)[-1]


def test_no_such_trial_names_what_there_is(tmp_path: Path) -> None:
    make_trial(tmp_path, "spam-1")
    make_trial(tmp_path, "spam-2")
    with pytest.raises(RecordNotFound, match="fits 2 trials"):
        open_trial(tmp_path, "spam")
    with pytest.raises(RecordNotFound, match=r"spam-1, spam-2|spam-2, spam-1"):
        open_trial(tmp_path, "nope")
    with pytest.raises(RecordNotFound):
        open_trial(tmp_path, "../etc")


def test_what_can_not_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where a folder should be")
    store = TrialStore(tmp_path / "runs" / "t")
    with pytest.raises(RecordUnwritable, match=r"run\.json: can't be written: Not a directory"):
        store.save_run(RunRecord(spec=RunSpec(run_id="r", model="m", index=0, seed=1)))
    with pytest.raises(RecordUnwritable, match="calls"):
        store.calls("r").append([])


@pytest.mark.parametrize("content", ["[" * 100_000, "\x00", "[]", '{"schema_version": 1}'])
def test_no_content_of_a_record_is_more_than_unreadable(tmp_path: Path, content: str) -> None:
    (tmp_path / "trial.json").write_text(content)
    with pytest.raises(RecordUnreadable, match=r"trial\.json"):
        TrialStore(tmp_path).load_trial()


def test_a_folder_in_place_of_a_record_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "trial.json").mkdir()
    with pytest.raises(RecordUnreadable, match=r"trial\.json: can't be read: Is a directory"):
        TrialStore(tmp_path).load_trial()
