"""The two kinds of stage, and the desk at which a run's stages work."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from orchestrator.agents.base import Aftermath, AgentJob
from orchestrator.config import Price
from orchestrator.errors import UnsafeOutput
from orchestrator.records.calls import CallError, CallRecord, usage_of, without_messages
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import (
    AgentStage,
    Evidence,
    ExecuteStage,
    Failure,
    PromptPlan,
    RunSpec,
    Usage,
)
from orchestrator.sandbox import network, volume
from orchestrator.sandbox.history import History, Pour, viewing
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.network import Network
from orchestrator.sandbox.volume import Volume
from orchestrator.scoring.runtime import ScoringBench, content_volume
from orchestrator.scoring.steps import header_of, run_stage
from orchestrator.task import AgentStageSpec, ExecuteStageSpec
from orchestrator.trial.bench import Bench
from orchestrator.trial.conduct import conduct
from orchestrator.trial.context import Material, Overflow, Room, planned, room_of
from orchestrator.trial.judge import judge_agent_stage
from orchestrator.trial.landed import junk, lost, touched
from orchestrator.trial.prompts import (
    StageOutput,
    output_of,
    own_files,
    render,
    variables,
    without_label,
)
from orchestrator.trial.truncation import Gauge
from orchestrator.trial.wallet import Purse, Spent, timeless

EXCERPT = "excerpt.csv"
"""The data's first lines, in the workspace; an agent is not to alter them."""
LAST_WORDS_S = 10.0
"""For an agent whose last call was ended for its time: to write what it has, and report."""
CALLS_REVIEWED = 64


@dataclass
class RunDesk:
    """One run in progress: its workspace, network and history, and what it last put out."""

    bench: Bench
    spec: RunSpec
    workspace: Volume
    data: Volume
    """What a submission trains on; looked up for each run, as somebody may remove it."""
    net: Network
    history: History
    pour: Pour
    baseline: frozenset[str]
    """Paths of the workspace before the first stage."""
    tree: str
    output: StageOutput | None = None
    spent: Spent = field(default_factory=Spent)
    stages_done: int = 0

    @property
    def owner(self) -> Owner:
        return Owner(trial=self.bench.store.trial_id, run=self.spec.run_id)

    @property
    def scoring(self) -> ScoringBench:
        """The same for execute stages and the score: what passes in one behaves so in the other."""
        bench = self.bench
        return ScoringBench(
            engine=bench.engine,
            tools=bench.images.tools,
            builder=bench.images.builder,
            scorer=bench.images.scorer,
            owner=self.owner,
            task=bench.task,
            data=self.data,
            seed=self.spec.seed,
            data_columns=header_of(bench.data.excerpt.read_bytes()),
            runtime=bench.settings.runtime,
        )

    def agent_stage_spec(self, name: str) -> AgentStageSpec:
        for stage in self.bench.task.stage:
            if isinstance(stage, AgentStageSpec) and stage.name == name:
                return stage
        raise KeyError(name)

    def file(self, path: str) -> bytes | None:
        """A regular file of the last snapshot; None where there is none, or one too large."""
        try:
            return self.history.read(self.tree, path)
        except UnsafeOutput:
            return None

    def room(self, recorded: PromptPlan | None) -> Room:
        """What a prompt may take of the context; `recorded`: as it was planned then."""
        bench = self.bench
        budget = bench.task.defaults.max_reply_tokens
        return room_of(bench.settings.num_ctx, budget, bench.gauges.get(self.spec.model), recorded)

    def material(self, template: str) -> Material:
        """All that this template could show. Never the data: only its excerpt."""
        wanted = variables(self.bench.task, template)
        files = own_files(self.history.extract(self.tree), self.baseline)
        excerpt = self.bench.data.excerpt.read_text(encoding="utf-8")
        return Material(
            excerpt=excerpt if "excerpt" in wanted else "",
            files=files if "files" in wanted else {},
            output=self.output if "output" in wanted else None,
        )

    def place(self, stage: str, turn: int) -> str:
        """Prefix of the stage's files in the record, in order of happening."""
        self.stages_done += 1
        suffix = f"-repair{turn}" if turn else ""
        return f"{self.stages_done:02d}-{stage}{suffix}"


def open_desk(bench: Bench, spec: RunSpec, stack: ExitStack) -> RunDesk:
    """A fresh workspace volume with the task's repo and the excerpt, and a network of its own."""
    owner = Owner(trial=bench.store.trial_id, run=spec.run_id)
    workspace = volume.create(bench.engine, owner.as_role("workspace"))
    stack.callback(volume.remove, bench.engine, workspace)
    files = workspace_files(bench)
    volume.fill(bench.engine, bench.images.tools.id, workspace, files, owner)
    net = stack.enter_context(network.internal(bench.engine, owner.as_role("agent")))
    if bench.gateway.revive():
        bench.log.event(
            "gateway", people="the gateway had ended; another one was started", run=spec.run_id
        )
    bench.gateway.attach(net)
    history = History(bench.store.run_folder(spec.run_id) / "history.git")
    pour = stack.enter_context(viewing(bench.engine, bench.images.tools.id, workspace, owner))
    return RunDesk(
        bench=bench,
        spec=spec,
        workspace=workspace,
        data=content_volume(bench.engine, bench.images.tools.id, "data", bench.data.agent_files()),
        net=net,
        history=history,
        pour=pour,
        baseline=frozenset(files),
        tree=history.keep("baseline", pour).id,
    )


def workspace_files(bench: Bench) -> dict[str, bytes]:
    """What the agent's workspace starts from: the task's repo folder and the excerpt."""
    repo = bench.task.folder / bench.task.repo
    files = {
        path.relative_to(repo).as_posix(): path.read_bytes()
        for path in sorted(repo.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    files[EXCERPT] = bench.data.excerpt.read_bytes()
    return files


def agent_stage(desk: RunDesk, stage: AgentStageSpec, template: str, turn: int) -> AgentStage:
    """Render the prompt, let the agent work in a fresh container, judge what is on disk."""
    bench, place = desk.bench, desk.place(stage.name, turn)
    price = bench.prices.get(desk.spec.model)
    budget, recording = bench.settings.budget, bench.recordings.get(desk.spec.model)
    purse = Purse(timeless(budget) if recording else budget, desk.spent, price)
    over = purse.exhausted(stage.name)
    if over is None and recording is not None:
        over = recording.not_asked(stage.name, turn)
    if over is not None:
        return _not_asked(desk, stage, turn, over)
    recorded = recording.prompt_plan(stage.name, turn) if recording else None
    room = desk.room(recorded)
    try:
        prompt, plan = planned(
            partial(render, bench.task, template, stage.expects), desk.material(template), room
        )
    except Overflow as overflow:
        return _not_asked(desk, stage, turn, overflow.failure(stage.name))
    bench.store.write_text(desk.spec.run_id, f"prompts/{place}.md", prompt)
    started, began = datetime.now(UTC), time.monotonic()
    access = bench.gateway.open(
        run=desk.spec.run_id,
        stage=stage.name,
        turn=turn,
        model=bench.models[desk.spec.model],
        seed=desk.spec.seed,
        network=desk.net,
        wallet=purse.order(),
    )
    try:
        report = bench.agent.run_stage(
            AgentJob(
                prompt=prompt,
                workspace=desk.workspace,
                network=desk.net,
                access=access,
                limits=_agent_limits(bench, purse),
                owner=desk.owner,
                read_only=(EXCERPT,),
                num_ctx=bench.settings.num_ctx,
                commits=bench.task.agent.commits,
                room_chars=room.chars(prompt),
            )
        )
    finally:
        watch = _Watch(stage.name, bench.gauges.get(desk.spec.model), price)
        bench.store.calls(desk.spec.run_id).append(watch.over(bench.gateway.close(access)))
        desk.spent += Spent(watch.usage, time.monotonic() - began)
    before = desk.tree
    tree = desk.history.keep(place, desk.pour)
    desk.tree = tree.id
    changes = desk.history.changes(before, tree.id)
    present = desk.history.files(tree.id)
    after = Aftermath(watch.calls, changes, desk.file)
    report = bench.agent.review(report, after, stage.name)
    for name, text in report.history.items():
        bench.store.write_text(desk.spec.run_id, f"agent/{place}-{name}", text)
    return AgentStage(
        name=stage.name,
        turn=turn,
        started_at=started,
        duration_s=time.monotonic() - began,
        tree=tree.id,
        changes=changes,
        missing=[name for name in stage.expects if name not in present],
        dropped=report.dropped,
        skipped=tree.skipped,
        announced=report.written,
        junk=junk(changes, stage.expects, prompt),
        data_touched=touched(changes, (EXCERPT,)),
        notes=report.notes,
        prompt=plan,
        usage=watch.usage,
        agent_output=report.output,
        commits=report.commits,
        failure=judge_agent_stage(
            stage=stage.name,
            expects=stage.expects,
            present=present.keys(),
            changes=changes,
            announced=report.written,
            lost=lost(report.written, report.blobs, present),
            dropped=report.dropped,
            reported=watch.failure or report.failure,
        ),
    )


class _Watch:
    """What a stage's calls amount to, seen one by one as they pass into the record."""

    def __init__(self, stage: str, gauge: Gauge | None, price: Price | None) -> None:
        self.usage = Usage()
        self.calls: deque[CallRecord] = deque(maxlen=CALLS_REVIEWED)
        """The last ones, without what was asked."""
        self._stage = stage
        self._gauge = gauge
        self._price = price
        self._differs: Failure | None = None
        self._cut: Failure | None = None
        self._conduct: Failure | None = None

    @property
    def failure(self) -> Failure | None:
        return self._differs or self._cut or self._conduct

    def over(self, calls: Iterable[CallRecord]) -> Iterator[CallRecord]:
        """The same calls, each judged as it passes."""
        for call in calls:
            self.usage = self.usage + usage_of([call], self._price)
            self._differs = self._differs or _differing(self._stage, call.error)
            cut = self._gauge.examine([call], self._stage) if self._gauge else None
            self._cut = self._cut or cut
            self._conduct = conduct([call], self._stage)
            self.calls.append(without_messages(call))
            yield call


def _agent_limits(bench: Bench, purse: Purse) -> Limits:
    """The task's; no longer than the wallet allows, a little later than the gateway ends calls."""
    limits, left = bench.task.limits.agent, purse.agent_s_left
    if left is None or left + LAST_WORDS_S >= limits.wall_s:
        return limits
    return limits.model_copy(update={"wall_s": left + LAST_WORDS_S})


def _not_asked(desk: RunDesk, stage: AgentStageSpec, turn: int, why: Failure) -> AgentStage:
    """A stage for which nothing is left in the wallet: all stays as it is."""
    present = desk.history.files(desk.tree)
    return AgentStage(
        name=stage.name,
        turn=turn,
        started_at=datetime.now(UTC),
        duration_s=0.0,
        tree=desk.tree,
        missing=[name for name in stage.expects if name not in present],
        failure=why,
    )


def execute_stage(desk: RunDesk, stage: ExecuteStageSpec, turn: int) -> ExecuteStage:
    """Run the stage's steps on a copy of the workspace; keep the output for the next prompt."""
    bench, place = desk.bench, desk.place(stage.name, turn)
    done = run_stage(
        desk.scoring,
        stage,
        turn=turn,
        files=desk.history.extract(desk.tree),
        input_csv=without_label(bench.data.excerpt, bench.task.scorer.label_column),
    )
    for step in done.steps:
        for name, stream in (("stdout", step.stdout), ("stderr", step.stderr)):
            bench.store.write_text(
                desk.spec.run_id, f"steps/{place}-{step.name}.{name}.txt", stream.text
            )
    recording = bench.recordings.get(desk.spec.model)
    # What a program printed may hold a time: a replay asks with what it printed then.
    desk.output = output_of((recording and recording.executed(stage.name, turn)) or done)
    return done


def _differing(stage: str, found: CallError | None) -> Failure | None:
    """The gateway's word on a replay that asked something else, whatever the agent made of it."""
    if found is None or found.failure_class is not FailureClass.REPLAY_DIFFERS:
        return None
    sentence, *lines = found.sentence.splitlines()
    return Failure(
        failure_class=FailureClass.REPLAY_DIFFERS,
        sentence=sentence,
        stage=stage,
        evidence=[Evidence(source="recording", excerpt=line) for line in lines],
    )
