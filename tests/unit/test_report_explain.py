"""`orch explain`: what decided a run, from records and snapshots alone."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_samples import START, agent_stage, execute_stage, finished, mixed_trial, score, trial
from rich.console import Console

from orchestrator.cli import main
from orchestrator.records.failures import Attribution
from orchestrator.records.failures import FailureClass as C
from orchestrator.records.schema import (
    Captured,
    Ending,
    Evidence,
    ExecuteStage,
    Failure,
    FileChange,
    MissingImport,
    RunRecord,
    RunStatus,
    StepRecord,
)
from orchestrator.records.store import TrialStore
from orchestrator.report.explain import Explanation, explain, explain_run
from orchestrator.report.explained import code, print_explanation
from orchestrator.report.summary import Outcome
from orchestrator.sandbox.history import History

SPEC = trial(["m"], 1).plan[0]
CODE = b"import pickle\n\n\ndef main():\n\tmodel = load()\n\tprint(model['x'])\n\nmain()\n"
STDERR = "warming up\nTraceback (most recent call last):\n  File ...\nKeyError: 'x'\nbye\n"


def crash(stage: str = "") -> Failure:
    return Failure(
        failure_class=C.RUNTIME_ERROR,
        sentence="predict: KeyError: 'x' (predict.py, line 6)",
        stage=stage,
        evidence=[
            Evidence(source="predict.stderr.txt", line=4, excerpt="KeyError: 'x'"),
            Evidence(source="predict.py", line=6, excerpt="print(model['x'])"),
        ],
    )


def step(stderr: str = STDERR) -> StepRecord:
    return StepRecord(
        name="predict",
        command=["python", "predict.py"],
        ending=Ending.EXITED,
        exit_code=1,
        duration_s=1.0,
        peak_memory_bytes=None,
        oom_kills=0,
        stdout=Captured(text="", total_bytes=0),
        stderr=Captured(text=stderr, total_bytes=len(stderr)),
    )


def check_stage(failed: bool, turn: int = 0) -> ExecuteStage:
    failure = crash("check") if failed else None
    return ExecuteStage(
        name="check",
        turn=turn,
        started_at=START,
        duration_s=1.0,
        steps=[step()],
        failure=failure,
    )


def read(tree: str, path: str) -> bytes | None:
    return {("t", "predict.py"): CODE}.get((tree, path))


def explained(record: RunRecord) -> Explanation:
    return explain("trial", record, read)


def printed(found: Explanation, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_explanation(found, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def failed_run() -> RunRecord:
    scored = score(0.0, failed="runtime-error").model_copy(
        update={"failure": crash(), "steps": [step()]}
    )
    return finished(SPEC, score=scored, stages=[agent_stage("implement"), check_stage(True)])


def test_a_failed_run_shows_class_attribution_evidence_and_mend() -> None:
    found = explained(failed_run())
    assert found.decided is not None
    assert (found.outcome, found.counts, found.retry) == (Outcome.FAILED, True, False)
    assert (found.decided.failure_class, found.decided.attribution) == (
        C.RUNTIME_ERROR,
        Attribution.MODEL,
    )
    output, source = found.decided.places
    assert [line.number for line in output.around] == [1, 2, 3, 4]
    assert output.around[-1].text == "KeyError: 'x'"
    assert [line.number for line in source.around] == [3, 4, 5, 6, 7, 8]
    text = printed(found)
    for part in (
        "m: failed",
        "counts as 0 in the means of its model",
        "a retry makes no sense before that is mended",
        "runtime-error (model) in scoring",
        "the program crashed: predict: KeyError: 'x' (predict.py, line 6)",
        "to mend it: see the traceback",
        "  > 6      print(model['x'])",
        "runtime-error (model) in check, not repaired\n    as above\n",
    ):
        assert part in text, text


def test_what_a_later_stage_made_good_is_told_from_what_stayed() -> None:
    missing = agent_stage("decide").model_copy(
        update={
            "missing": ["D.md"],
            "failure": Failure(
                failure_class=C.ARTIFACT_MISSING, sentence="no D.md", stage="decide"
            ),
        }
    )
    left = agent_stage("implement", 1).model_copy(
        update={"changes": [FileChange(path="D.md", change="added", size=1)]}
    )
    silent = agent_stage("evaluate").model_copy(
        update={"failure": Failure(failure_class=C.NO_EDITS, sentence="nothing", stage="evaluate")}
    )
    stages = [missing, check_stage(True), left, check_stage(False, 1), silent]
    found = explained(finished(SPEC, score=score(0.8), stages=stages))
    assert found.decided is None
    assert [(one.stage, one.repaired) for one in found.on_the_way] == [
        ("decide", True),
        ("check", True),
        ("evaluate", False),
    ]
    text = printed(found)
    assert "m: scored 0.800; nothing failed in its scoring" in text
    assert "a retry" not in text


def test_the_failure_of_a_stage_that_decided_the_run_is_told_once() -> None:
    failure = Failure(failure_class=C.NO_EDITS, sentence="nothing", stage="implement")
    stage = agent_stage("implement").model_copy(update={"failure": failure})
    missing = Failure(failure_class=C.NO_ENTRY_POINT, sentence="predict.py is not there")
    scored = score(0.0).model_copy(update={"failure": missing, "metrics": None})
    found = explained(finished(SPEC, score=scored, failure=failure, stages=[stage]))
    assert found.decided is not None
    assert (found.decided.stage, found.decided.failure_class) == ("implement", C.NO_EDITS)
    assert [one.failure_class for one in found.on_the_way] == [C.NO_ENTRY_POINT]


def test_a_failure_of_the_harness_counts_nowhere_and_may_be_done_again() -> None:
    failure = Failure(
        failure_class=C.ENGINE_UNAVAILABLE,
        sentence="the engine is gone",
        evidence=[Evidence(source="engine", excerpt="the engine is gone")],
    )
    found = explained(finished(SPEC, failure=failure, stages=[agent_stage("explore")]))
    assert (found.outcome, found.counts, found.retry) == (Outcome.HARNESS, False, True)
    text = printed(found)
    assert "m: ended without a result" in text
    assert "in no denominator: it says nothing of the model" in text
    assert "done again, it may come out otherwise" in text
    assert "engine-unavailable (harness)\n" in text


@pytest.mark.parametrize(
    ("status", "stages", "says"),
    [
        (RunStatus.PLANNED, [], "m: not started"),
        (RunStatus.RUNNING, [agent_stage("explore")], "m: running, past explore"),
        (RunStatus.INTERRUPTED, [execute_stage("check")], "m: interrupted, past check"),
        (RunStatus.INTERRUPTED, [], "m: interrupted\n"),
    ],
)
def test_unfinished_runs(status: RunStatus, stages: list[object], says: str) -> None:
    record = RunRecord(spec=SPEC, status=status, stages=stages)  # type: ignore[arg-type]
    text = printed(explained(record))
    assert says in text
    assert "in no denominator: it has not come to its end" in text


def test_every_kind_of_run_is_explained_in_80_columns_and_less() -> None:
    record, runs = mixed_trial()
    known = {run.spec.run_id: run for run in runs}
    for spec in record.plan:
        found = explained(known.get(spec.run_id, RunRecord(spec=spec)))
        Explanation.model_validate_json(found.model_dump_json())
        for width in (40, 80, 200):
            assert all(len(line) <= width for line in printed(found, width).splitlines())


def test_what_a_model_wrote_can_not_steer_the_terminal() -> None:
    evil = "\x1b[2J\x1b]0;title\x07[red]\u202ex"
    failure = Failure(
        failure_class=C.RUNTIME_ERROR,
        sentence=evil,
        stage=evil,
        evidence=[
            Evidence(source=evil, line=1, excerpt=evil),
            Evidence(source="predict.stderr.txt", line=1, excerpt=""),
        ],
    )
    stage = check_stage(True).model_copy(
        update={"failure": failure, "name": evil, "steps": [step(f"  {evil}\t{evil}\n")]}
    )
    missing = MissingImport(module=evil, package=evil, path=evil, line=1)
    scored = score(0.1).model_copy(update={"missing_imports": [missing]})
    text = printed(explained(finished(SPEC, score=scored, stages=[stage])))
    assert not {"\x1b", "\x07", "\u202e", "\t"} & set(text)
    assert "[red]" in text


@pytest.mark.parametrize("line", [0, -1, 10**9])
def test_a_line_that_a_file_does_not_have_shows_the_excerpt(line: int) -> None:
    failure = crash().model_copy(
        update={"evidence": [Evidence(source="predict.py", line=line, excerpt="print(x)")]}
    )
    record = finished(SPEC, score=score(0.0).model_copy(update={"failure": failure}))
    found = explained(record)
    assert found.decided is not None
    assert found.decided.places[0].around == []
    assert "print(x)" in printed(found)


def test_evidence_of_several_lines_keeps_them() -> None:
    words = "Because a needs b\n  and b needs c\n" + "more\n" * 100
    failure = Failure(
        failure_class=C.DEPENDENCY_CONFLICT,
        sentence="no way",
        evidence=[Evidence(source="resolver", line=1, excerpt=words)],
    )
    text = printed(
        explained(finished(SPEC, score=score(0.0).model_copy(update={"failure": failure})))
    )
    assert "      Because a needs b\n        and b needs c\n      more\n" in text
    assert text.count("more") == 18


def test_indentation_stays_and_has_an_end() -> None:
    assert code("\tif x:") == "    if x:"
    assert code(" " * 500 + "x") == " " * 40 + "x"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with the trial of the samples in it."""
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    record, known = mixed_trial()
    store = TrialStore(tmp_path / "runs" / record.trial_id)
    store.save_trial(record)
    for run in known:
        store.save_run(run)
    return tmp_path / "runs"


def test_the_command_finds_a_run_by_parts_of_its_name(runs: Path) -> None:
    done = CliRunner().invoke(main, ["explain", "latest/undeclared-import-01", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["run_id"] == "scripted-undeclared-import-01"
    assert found["decided"]["failure_class"] == "undeclared-dependency"
    # Nothing works on the trial: what was left running was interrupted.
    left = CliRunner().invoke(main, ["explain", "qwen3-coder-30b-a3b-02"])
    assert "interrupted" in left.output


@pytest.mark.parametrize("name", ["nothing", "latest/nothing", "latest/0", "none/x", "", "/"])
def test_a_run_that_is_not_there_is_a_usage_error(runs: Path, name: str) -> None:
    done = CliRunner().invoke(main, ["explain", name])
    assert done.exit_code == 2
    assert done.output.startswith("orch: ")


def test_a_record_without_its_history_is_explained_from_what_is_there(runs: Path) -> None:
    store = TrialStore(next(runs.iterdir()))
    store.save_run(failed_run().model_copy(update={"spec": store.load_trial().plan[0]}))
    found = explain_run(store, store.load_trial().plan[0].run_id, alive=False)
    assert found.decided is not None
    assert [bool(place.around) for place in found.decided.places] == [True, False]


def test_lines_come_from_the_snapshot(runs: Path) -> None:
    store = TrialStore(next(runs.iterdir()))
    spec = store.load_trial().plan[0]
    history = History(store.run_folder(spec.run_id) / "history.git")

    def pour(stream: object) -> list[object]:
        content = b"M 100644 inline predict.py\ndata %d\n%s\n" % (len(CODE), CODE)
        stream.write(content)  # type: ignore[attr-defined]
        return []

    tree = history.keep("one", pour)  # type: ignore[arg-type]
    record = failed_run()
    assert record.score is not None
    at = record.score.model_copy(update={"tree": tree.id})
    store.save_run(record.model_copy(update={"spec": spec, "score": at}))
    found = explain_run(store, spec.run_id, alive=False)
    assert found.decided is not None
    assert found.decided.places[1].around[3].text == "\tprint(model['x'])"
