"""Finding a recorded run, what has changed since, and comparing a replay with it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.errors import ModelUnknown, RecordNotFound, ReplayRefused
from orchestrator.models.reference import parse_reference
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import (
    AgentStage,
    Captured,
    DataRecord,
    Ending,
    ExecuteStage,
    Failure,
    ImageRecord,
    ModelRecord,
    RunRecord,
    RunStatus,
    ScoreRecord,
    StepRecord,
    TrialRecord,
    TrialSettings,
    Usage,
)
from orchestrator.records.store import TrialStore
from orchestrator.trial.plan import make_plan
from orchestrator.trial.recording import (
    Now,
    Recording,
    Replays,
    drift,
    find_recording,
    refuse_settings,
)
from orchestrator.trial.replay import Comparison, broke_off, compare, printed_otherwise

STARTED = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = TrialSettings(runs=2, seed=1, repair_turns=1, num_ctx=8192, scale=0.02)
DATA = DataRecord(seed=5, scale=0.02, generator_sha256="g", files={"key/labels.csv": "1"})
IMAGES = [ImageRecord(name="agent", id="sha256:1", inputs_sha256="i")]


def store_of(runs: Path, trial: str, models: list[str]) -> TrialStore:
    store = TrialStore(runs / trial)
    plan = make_plan(models, 2, 1)
    store.save_trial(
        TrialRecord(
            trial_id=trial,
            orch_version="0",
            created_at=STARTED,
            task="spam",
            task_sha256="t",
            settings=SETTINGS,
            data=DATA,
            images=IMAGES,
            models=[ModelRecord(reference=m, upstream="ollama", name=m) for m in models],
            engine={},
            plan=plan,
        )
    )
    for spec in plan:
        store.save_run(RunRecord(spec=spec, status=RunStatus.FINISHED))
    return store


@pytest.fixture
def store(tmp_path: Path) -> TrialStore:
    return store_of(tmp_path, "spam-1", ["gpt-oss:20b", "qwen:4b"])


@pytest.mark.parametrize(
    "text",
    [
        "spam-1/gpt-oss-20b-02",
        "replay/spam-1/gpt-oss-20b-02",
        "latest/gpt-oss-20b-02",
        "spam/oss-20b-02",
        "gpt-oss-20b-02",
        "20b-02",
    ],
)
def test_a_run_is_found_by_any_of_its_spellings(store: TrialStore, text: str) -> None:
    found = find_recording(store.folder.parent, text)
    assert found.name == "spam-1/gpt-oss-20b-02"
    assert found.model.name == "gpt-oss:20b"


def test_a_run_is_found_by_its_folder_wherever_it_lies(store: TrialStore, tmp_path: Path) -> None:
    found = find_recording(tmp_path / "elsewhere", str(store.run_folder("qwen-4b-01")))
    assert found.name == "spam-1/qwen-4b-01"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("spam-1/gpt", "fits 2 runs of spam-1, which has: gpt-oss-20b-01, qwen-4b-01"),
        ("spam-1/llama", "is no run of spam-1, which has"),
        ("spam-2/gpt-oss-20b-01", "no trial 'spam-2'"),
        ("llama", "write TRIAL/RUN"),
        ("spam-1/", "is no run"),
    ],
)
def test_a_run_that_is_none_or_several_is_refused(store: TrialStore, text: str, says: str) -> None:
    with pytest.raises(RecordNotFound, match=says):
        find_recording(store.folder.parent, text)


def test_a_run_alone_is_of_the_latest_trial_that_has_it(store: TrialStore, tmp_path: Path) -> None:
    store_of(tmp_path, "spam-2", ["qwen:4b"])
    store_of(tmp_path, "spam-3", ["replay/spam-2/qwen-4b-01"])
    assert find_recording(tmp_path, "gpt-oss-20b-01").name == "spam-1/gpt-oss-20b-01"


@pytest.mark.parametrize("status", [RunStatus.PLANNED, RunStatus.RUNNING, RunStatus.INTERRUPTED])
def test_a_run_that_did_not_end_is_refused(store: TrialStore, status: RunStatus) -> None:
    record = store.load_run("qwen-4b-01").model_copy(update={"status": status})
    store.save_run(record)
    with pytest.raises(ReplayRefused, match=f"is {status}"):
        find_recording(store.folder.parent, "qwen-4b-01")


def recording(store: TrialStore) -> Recording:
    return find_recording(store.folder.parent, "spam-1/gpt-oss-20b-02")


def test_what_has_changed_since_is_named(store: TrialStore) -> None:
    one = recording(store)
    assert drift(one, Now("t", DATA, IMAGES)) == []
    other_data = DATA.model_copy(update={"seed": 6, "files": {"key/labels.csv": "2", "new": "3"}})
    other_image = IMAGES[0].model_copy(update={"id": "sha256:2"})
    now = Now("u", other_data, [other_image])
    assert drift(one, now) == [
        "task spam",
        "data seed (5 recorded, 6 now)",
        "data key/labels.csv",
        "data new",
        "image agent",
    ]


def test_drift_is_refused_by_name_or_allowed_and_noted(store: TrialStore) -> None:
    one = recording(store)
    now = Now("u", DATA, IMAGES)
    with pytest.raises(ReplayRefused, match=r"another task spam; .*--allow-drift"):
        Replays({one.reference: one}, allow_drift=False).check(now)
    (model,) = Replays({one.reference: one}, allow_drift=True).check(now)
    assert model.upstream == "replay"
    assert (model.reference, model.name) == ("replay/spam-1/gpt-oss-20b-02", "gpt-oss:20b")
    assert model.notes == [
        "replays spam-1/gpt-oss-20b-02, a run of gpt-oss:20b",
        "drift allowed: task spam",
    ]


def test_a_replay_in_a_trial_with_other_settings_is_refused_by_name(store: TrialStore) -> None:
    one = recording(store)
    refuse_settings(one, SETTINGS.model_copy(update={"runs": 5, "seed": 9}))
    with pytest.raises(ReplayRefused) as caught:
        refuse_settings(one, SETTINGS.model_copy(update={"num_ctx": 4096, "scale": 1.0}))
    assert "num_ctx is 8192 in the recording and 4096 here; scale is 0.02" in str(caught.value)


def test_a_replay_has_one_run_with_the_recorded_seed() -> None:
    plan = make_plan(["a", "replay/t/b-02"], 2, 1, {"replay/t/b-02": 77})
    assert [(spec.run_id, spec.index) for spec in plan] == [
        ("a-01", 0),
        ("replay-b-02-01", 0),
        ("a-02", 1),
    ]
    assert [spec.seed for spec in plan if spec.model.startswith("replay/")] == [77]


def test_a_replay_reference_names_trial_and_run() -> None:
    assert parse_reference("replay/spam-1/a-01").name == "spam-1/a-01"
    assert not parse_reference("replay/spam-1/a-01").needs_upstream
    with pytest.raises(ModelUnknown, match="replay/TRIAL/RUN"):
        parse_reference("replay/a-01")


def run(tree: str = "a", printed: str = "7 rows", score: float = 0.5) -> RunRecord:
    text = Captured(text=printed, total_bytes=len(printed))
    step = StepRecord(
        name="explore",
        command=["python", "explore.py"],
        ending=Ending.EXITED,
        exit_code=0,
        duration_s=1,
        peak_memory_bytes=1,
        oom_kills=0,
        stdout=text,
        stderr=Captured(text="", total_bytes=0),
    )
    return RunRecord(
        spec=make_plan(["m"], 1, 1)[0],
        stages=[
            AgentStage(
                name="explore", started_at=STARTED, duration_s=1, tree=tree, usage=Usage(calls=1)
            ),
            ExecuteStage(name="run-explore", started_at=STARTED, duration_s=1, steps=[step]),
        ],
        score=ScoreRecord(tree=tree, score=score, predictions_sha256="p"),
    )


def differing(one: RunRecord, other: RunRecord) -> list[str]:
    return [row.what for row in compare(one, other) if not row.same]


def test_equal_runs_are_the_same_whatever_they_printed() -> None:
    assert differing(run(), run(printed="8 rows")) == []
    assert printed_otherwise(run(), run()) == []
    (note,) = printed_otherwise(run(), run(printed="8 rows"))
    assert note.startswith("run-explore, step explore, printed something else")


def test_every_difference_is_a_row() -> None:
    assert differing(run(), run(tree="b")) == ["snapshot explore"]
    assert differing(run(), run(score=0.4)) == ["score"]
    cut = run().model_copy(update={"stages": [], "score": None})
    assert differing(run(), cut) == [
        "model calls",
        "snapshot explore",
        "predictions sha256",
        "score",
    ]
    failed = Failure(failure_class=FailureClass.TIMEOUT, sentence="too slow")
    assert differing(run(), run().model_copy(update={"failure": failed})) == ["failure"]


def test_a_record_that_the_harness_broke_off_is_said_to_stop() -> None:
    lost = Failure(failure_class=FailureClass.ENGINE_UNAVAILABLE, sentence="it is gone")
    (note,) = broke_off(run().model_copy(update={"failure": lost}))
    assert note == "the recorded run was ended by engine-unavailable; its record stops there"
    own = Failure(failure_class=FailureClass.TIMEOUT, sentence="too slow")
    assert broke_off(run().model_copy(update={"failure": own})) == broke_off(run()) == []


def test_a_comparison_reads_as_lines_and_as_json() -> None:
    compared = Comparison(
        original="t/m-01",
        replay="u/replay-m-01-01",
        rows=compare(run(), run(tree="b")),
        failure=None,
        notes=["drift allowed: task spam"],
    )
    lines = compared.lines()
    assert "  snapshot explore       DIFFERENT  a | b" in lines
    assert lines[-1] == "note: drift allowed: task spam"
    data = compared.json_ready()
    assert data["same"] is False
    assert [row["what"] for row in data["rows"] if not row["same"]] == ["snapshot explore"]  # type: ignore[attr-defined]
