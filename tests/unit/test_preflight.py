"""What refuses a trial before it starts, and what it is said to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from doctor_samples import FACTS, INFO, with_engine, with_info, with_ollama
from report_samples import START, failure, finished, score, trial

from orchestrator.errors import PreflightFailed
from orchestrator.models.ollama import GIB
from orchestrator.models.reference import parse_reference
from orchestrator.records.schema import RunRecord, RunStatus
from orchestrator.records.store import TrialStore
from orchestrator.task import Task
from orchestrator.trial.estimate import Estimate, Wanted, earlier_runs, estimate
from orchestrator.trial.facts import Facts, ImageFact
from orchestrator.trial.preflight import clear, refuse_runtime

TASK = Task.model_validate(
    {
        "schema": 1,
        "name": "spam",
        "title": "t",
        "summary": "s",
        "data": {"generator": "g.py", "seed": 1, "train_rows": 200_000, "holdout_rows": 50_000},
        "stage": [
            {"kind": "agent", "name": "implement", "prompt": "p.md"},
            {
                "kind": "execute",
                "name": "check",
                "steps": [{"name": "train", "command": ["python", "train.py"]}],
            },
        ],
        "scorer": {
            "kind": "predictions",
            "train": {"name": "train", "command": ["x"]},
            "predict": {"name": "predict", "command": ["x"]},
            "id_column": "id",
            "label_column": "label",
        },
    }
)
NO_OLLAMA = with_ollama(problem="no Ollama answers at http://x")
NO_ENGINE = replace(FACTS, engine=None, engine_problem="No container engine at unix:///x.")


def wanted(*models: str, runs: int = 2, scale: float = 1.0) -> Wanted:
    return Wanted(TASK, tuple(map(parse_reference, models)), runs, scale, data_bytes=100 << 20)


def estimated(
    want: Wanted, facts: Facts = FACTS, earlier: Mapping[str, Sequence[float]] | None = None
) -> Estimate:
    return estimate(want, earlier or {}, facts)


def refusal(facts: Facts, *models: str) -> str:
    want = wanted(*models)
    with pytest.raises(PreflightFailed) as raised:
        clear(facts, want, estimated(want, facts))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_good_machine_may_start_without_warnings() -> None:
    want = wanted("gpt-oss:20b", "scripted/careful")
    cleared = clear(FACTS, want, estimated(want))
    assert cleared.warnings == []
    assert cleared.estimate == estimated(want)


def test_a_runtime_that_the_engine_does_not_have_refuses() -> None:
    assert "no runtime 'runsc'" in refusal(replace(FACTS, runtime="runsc"), "scripted/careful")
    with pytest.raises(PreflightFailed, match="no runtime 'runsc'; it has: nvidia, runc") as raised:
        refuse_runtime(INFO, "runsc")
    assert "\n" not in str(raised.value)
    refuse_runtime(INFO, None)
    refuse_runtime(INFO, "runc")


def test_all_failures_are_said_each_with_its_mend() -> None:
    sentence = refusal(with_info(NO_OLLAMA, ncpu=1, memory_bytes=GIB), "gpt-oss:20b")
    for words in ("cpus: 1;", "lower cpus", "memory: 1.0 GiB", "ollama: no Ollama answers at"):
        assert words in sentence


def test_no_engine_refuses_any_trial() -> None:
    assert "unix:///x" in refusal(NO_ENGINE, "scripted/careful")


def test_scripted_models_need_no_model_server_and_no_gpu() -> None:
    facts = replace(with_info(NO_OLLAMA, runtimes=()), gpu="cdi")
    want = wanted("scripted/careful")
    assert clear(facts, want, estimated(want, facts)).warnings == []
    assert "ollama" in refusal(facts, "scripted/careful", "gpt-oss:20b")


def test_models_behind_an_api_need_no_ollama_and_no_gpu() -> None:
    facts = replace(with_info(NO_OLLAMA, runtimes=()), gpu="cdi")
    want = wanted("openai/m", "anthropic/m")
    cleared = clear(facts, want, estimated(want, facts))
    assert cleared.warnings == []
    assert not any("unknown" in line or "Ollama" in line for line in cleared.estimate.lines())


def test_another_task_that_is_broken_does_not_refuse() -> None:
    want = wanted("scripted/careful")
    assert clear(replace(FACTS, tasks_problem="other: bad"), want, estimated(want)).warnings == []


def test_what_is_odd_but_works_is_a_warning() -> None:
    want = wanted("scripted/careful")
    facts = with_info(FACTS, storage_driver="vfs", system_time=START - timedelta(days=1))
    names = [check.name for check in clear(facts, want, estimated(want, facts)).warnings]
    assert names == ["clock", "storage"]


def test_a_disk_too_small_for_this_trial_refuses_it() -> None:
    models = [f"scripted/m{n}" for n in range(20)]
    roomy, tight = with_info(free_bytes=40 * GIB), with_info(free_bytes=7 * GIB)
    assert "the trial takes about 7.9 GiB" in refusal(tight, *models)
    want = wanted(*models)
    assert clear(roomy, want, estimated(want, roomy)).warnings == []


def test_time_comes_from_earlier_runs_where_there_are_some() -> None:
    known = {"gpt-oss:20b": [600.0, 700.0, 2000.0], "scripted/a": [60.0]}
    found = estimated(wanted("gpt-oss:20b", "scripted/a", runs=5), earlier=known)
    assert found.seconds == 5 * (700.0 + 60.0)
    assert [(part.what, part.source) for part in found.time] == [
        ("gpt-oss:20b", "median of 3 earlier runs"),
        ("scripted/a", "one earlier run"),
    ]


def test_models_of_which_the_same_is_assumed_share_a_line() -> None:
    found = estimated(wanted("scripted/a", "scripted/b", runs=1))
    assert "scripted/a, scripted/b 2m 03s a run (assumed:" in found.lines()[0]


def test_time_is_assumed_elsewhere_and_says_of_what() -> None:
    on_gpu = estimated(wanted("gpt-oss:20b", runs=1))
    assert on_gpu.seconds == 3000 / 30 + 3 * 30 + 30
    assert (
        "assumed: 1 x 3000 tokens written at 30 a second, 3 x 30 s of a step" in (on_gpu.lines()[0])
    )
    cpu = with_info(replace(FACTS, ollama_given=False), runtimes=("runc",))
    assert estimated(wanted("gpt-oss:20b", runs=1), cpu).seconds == 3000 / 5 + 3 * 30 + 30
    own = wanted("openai/smollm2", runs=1)
    assert estimated(own).seconds == on_gpu.seconds
    served = replace(own, own=own.models[0])
    assert estimated(served).seconds == 2000 / 15 + 3 * 30 + 30
    small = estimated(wanted("scripted/a", runs=1, scale=0.0))
    assert small.seconds == 3 + 3 * 3 + 30


def test_repair_turns_count_as_taken_with_all_that_they_are_scored_for() -> None:
    check = TASK.stage[1].model_copy(update={"repairs": "implement"})
    task = TASK.model_copy(update={"stage": (TASK.stage[0], check)})
    want = replace(wanted("scripted/a", runs=1, scale=0.0), task=task)
    none = estimated(want)
    assert none.seconds == estimated(wanted("scripted/a", runs=1, scale=0.0)).seconds
    assert "repair" not in none.lines()[0]
    twice = estimated(replace(want, repair_turns=2))
    # Each: a stage of the agent, the execute stage again, one more scoring than there are turns.
    assert twice.seconds == none.seconds + 2 * 3 + (2 * 1 + 3 * 2) * 3
    assert "every repair turn taken" in twice.lines()[0]


def test_disk_is_what_is_not_there_yet() -> None:
    facts = with_engine(images=(ImageFact("base", True, 700), ImageFact("scorer", False, 1000)))
    facts = replace(facts, ollama_given=False, ollama_image_here=False)
    scripted = estimated(wanted("scripted/a"), facts)
    assert scripted.disk_bytes == (1000 + 100 + 400) << 20
    with_model = estimated(wanted("gpt-oss:20b"), facts)
    assert with_model.disk_bytes == scripted.disk_bytes + 5_500_000_000
    unmade = replace(wanted("scripted/a", scale=0.5), data_bytes=None)
    assert estimated(unmade).disk_bytes == 125_000 * 400 + (400 << 20)


def test_memory_is_a_scorer_and_the_largest_model_at_a_time() -> None:
    assert estimated(wanted("scripted/a", "scripted/b")).memory_bytes == int(4.5 * GIB)
    found = estimated(wanted("scripted/a", "gpt-oss:20b"))
    assert found.memory_bytes == int(18.5 * GIB)
    assert "largest model, on the GPU as far as it fits 14.0 GiB" in found.lines()[2]


def test_a_model_to_be_pulled_is_named_as_unknown() -> None:
    found = estimated(wanted("qwen3-coder:30b-a3b", "gpt-oss:20b"))
    assert found.lines()[3:] == ["unknown size of qwen3-coder:30b-a3b, which is pulled first"]


def test_a_model_without_a_tag_is_the_latest() -> None:
    facts = replace(FACTS, needs=replace(FACTS.needs, models={"phi:latest": GIB}))
    assert estimated(wanted("phi"), facts).unknown == ()
    assert estimated(wanted("phi"), facts).memory_bytes == int(5.5 * GIB)


def test_earlier_runs_are_of_this_task_scale_and_model_with_a_valid_end(tmp_path: Path) -> None:
    record = trial(["m", "other"], 5)
    runs = {spec.run_id: spec for spec in record.plan}
    kept = [
        finished(runs["m-01"], score=score(0.8), duration_s=10.0),
        finished(runs["m-02"], failure=failure("timeout"), duration_s=20.0),
        finished(runs["m-03"], failure=failure("engine-unavailable"), duration_s=30.0),
        RunRecord(spec=runs["m-04"], status=RunStatus.INTERRUPTED, duration_s=40.0),
        finished(runs["other-01"], score=score(0.8), duration_s=50.0),
    ]
    for name, changes in {
        "same": {},
        "small": {"settings": record.settings.model_copy(update={"scale": 0.02})},
        "elsewhere": {"task": "jobs"},
        "unreadable": {},
    }.items():
        store = TrialStore(tmp_path / name)
        store.save_trial(record.model_copy(update=changes))
        for run in kept:
            store.save_run(run)
    (tmp_path / "unreadable" / "trial.json").write_text("{")
    assert earlier_runs(tmp_path, TASK, ["m", "new"], 1.0) == {"m": [10.0, 20.0], "new": []}
