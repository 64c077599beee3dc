"""A trial from its options to its report: refuse, prepare, store the plan, do run after run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from orchestrator import __version__
from orchestrator.agents import registry
from orchestrator.config import Settings
from orchestrator.errors import EngineError, Interrupted, PreflightFailed, UsageError
from orchestrator.gateway.service import CallSettings, GatewayService, Uplink
from orchestrator.models.ollama import Ollama
from orchestrator.models.reference import ModelKind, ModelReference, parse_reference
from orchestrator.models.server import model_server
from orchestrator.models.smollm2 import managed_smollm2
from orchestrator.records.schema import Budget, ModelRecord, TrialRecord, TrialSettings
from orchestrator.records.store import TrialStore, new_trial_id
from orchestrator.report.summary import TrialSummary, summarise_store
from orchestrator.sandbox import network
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.probe import prove_isolation
from orchestrator.task import Task
from orchestrator.trial import wallet
from orchestrator.trial.bench import Bench
from orchestrator.trial.data import DataSet, ensure_data
from orchestrator.trial.estimate import Wanted, earlier_runs, estimate
from orchestrator.trial.gather import gather
from orchestrator.trial.log import Say, TrialLog
from orchestrator.trial.plan import make_plan
from orchestrator.trial.preflight import clear
from orchestrator.trial.prompts import check_prompts
from orchestrator.trial.recording import (
    Now,
    Recording,
    Replays,
    find_recording,
    refuse_settings,
)
from orchestrator.trial.run import perform
from orchestrator.trial.scripts import check_scripted, render_scripts
from orchestrator.trial.session import session
from orchestrator.trial.tasks import find_task
from orchestrator.trial.tools import Images, trial_images
from orchestrator.trial.truncation import Gauge, counts_cached
from orchestrator.trial.upstreams import check_remote, own_model, prepare_own, remote_models

KEEP_ALIVE = "1h"
SERVER_START_S = 120.0


@dataclass(frozen=True)
class TrialOptions:
    """What the user asked for; None: what the task says."""

    task: str
    models: Sequence[str]
    agent: str = "builtin"
    runs: int | None = None
    seed: int = 1
    repair_turns: int | None = None
    num_ctx: int | None = None
    temperature: float | None = None
    think: str | None = None
    budget: Budget = field(default_factory=Budget)
    scale: float = 1.0
    repeat: int = 1
    runtime: str | None = None
    allow_drift: bool = False
    """Replay a run also where task, data or images are not those that it was recorded with."""
    recordings: Mapping[str, Recording] = field(default_factory=dict)
    """Of replays among the models, those that are known already."""


def say_to_stderr(line: str) -> None:
    """A terminal that is gone, or is just being written to when a signal comes, stops nothing."""
    with suppress(OSError, RuntimeError, ValueError):
        print(line, file=sys.stderr, flush=True)


def run_trial(settings: Settings, options: TrialOptions, say: Say = say_to_stderr) -> TrialSummary:
    """Do a whole trial; its records lie under `runs/` from the moment its plan is stored.

    What can't work is refused before any run, by the errors of preflight. Raises Interrupted when
    the user stops it; what was finished by then is kept.
    """
    registry.image_of(options.agent)
    task = find_task(settings, options.task)
    references, recordings = _references(settings, options)
    check_scripted(task, references)
    check_prompts(task)
    check_remote(settings, references, options.temperature, options.think)
    chosen = _chosen(task, options)
    for recording in recordings.values():
        refuse_settings(recording, chosen)
    data = ensure_data(settings.holdout_dir, task, chosen.scale, say=say)
    replays = Replays(recordings, options.allow_drift)
    replays.check(Now(task.fingerprint(), data.record))
    _preflight(settings, task, references, chosen, data, say)
    store = TrialStore(settings.runs_dir / new_trial_id(task.name))
    done = False
    try:
        with ExitStack() as stack:
            engine = Engine.connect()
            owner = stack.enter_context(session(settings, engine, store.trial_id, say))
            bench, record = _prepare(
                _Start(
                    settings, engine, owner, task, references, replays, chosen, data, store, say
                ),
                stack,
            )
            for spec in record.plan:
                perform(bench, spec)
            done = True
    except EngineError as exc:
        if not done:
            raise
        # The records are whole: that the engine is gone now takes nothing from them.
        say(f"while clearing away: {exc}")
    except KeyboardInterrupt:
        raise Interrupted(_interrupted(store)) from None
    return summarise_store(store, alive=False)


def _references(
    settings: Settings, options: TrialOptions
) -> tuple[list[ModelReference], dict[str, Recording]]:
    """The models, and the recordings of those that are replays."""
    references: list[ModelReference] = []
    recordings: dict[str, Recording] = {}
    for text in options.models:
        reference = parse_reference(text)
        if reference.kind is ModelKind.REPLAY:
            recording = options.recordings.get(text)
            recording = recording or find_recording(settings.runs_dir, reference.name)
            reference = recording.answering(replace(reference, text=recording.reference))
            recordings[reference.text] = recording
        references.append(reference)
    for reference in references:
        if references.count(reference) > 1:
            raise UsageError(f"--models names {reference.text} twice; use --runs for more runs")
    return references, recordings


def _chosen(task: Task, options: TrialOptions) -> TrialSettings:
    defaults = task.defaults
    return TrialSettings(
        runs=defaults.runs if options.runs is None else options.runs,
        seed=options.seed,
        repair_turns=(
            defaults.repair_turns if options.repair_turns is None else options.repair_turns
        ),
        num_ctx=defaults.num_ctx if options.num_ctx is None else options.num_ctx,
        temperature=options.temperature,
        think=options.think,
        budget=wallet.chosen(options.budget, task.budget),
        scale=options.scale,
        repeat=options.repeat,
        runtime=options.runtime,
        agent=options.agent,
    )


def _preflight(
    settings: Settings,
    task: Task,
    references: Sequence[ModelReference],
    chosen: TrialSettings,
    data: DataSet,
    say: Say,
) -> None:
    """Raises PreflightFailed; tells warnings and what the trial will take."""
    wanted = Wanted(
        task=task,
        models=tuple(references),
        runs=chosen.runs,
        scale=chosen.scale,
        data_bytes=data.size_bytes(),
        repair_turns=chosen.repair_turns,
        own=own_model(settings, references),
    )
    facts = gather(settings, [task], [one.name for one in references if one.needs_ollama])
    facts = replace(facts, runtime=chosen.runtime)
    earlier = earlier_runs(settings.runs_dir, task, [one.text for one in references], chosen.scale)
    cleared = clear(facts, wanted, estimate(wanted, earlier, facts))
    for check in cleared.warnings:
        say(f"warning: {check.name}: {check.found}" + (f" ({check.mend})" if check.mend else ""))
    for line in cleared.estimate.lines():
        say(line)


@dataclass(frozen=True)
class _Start:
    settings: Settings
    engine: Engine
    owner: Owner
    task: Task
    references: Sequence[ModelReference]
    replays: Replays
    chosen: TrialSettings
    data: DataSet
    store: TrialStore
    say: Say

    @property
    def needs_server(self) -> bool:
        return any(reference.needs_upstream for reference in self.references)


def _prepare(start: _Start, stack: ExitStack) -> tuple[Bench, TrialRecord]:
    """Images, gateway, models, proof of isolation; then the plan is stored."""
    name = start.chosen.agent
    images = trial_images(start.engine, registry.image_of(name), start.say)
    replayed = start.replays.check(
        Now(start.task.fingerprint(), start.data.record, images.records())
    )
    agent = registry.make(name, start.engine, images.agent)
    uplink = Uplink(start.settings.uplink_network) if start.needs_server else None
    gateway = stack.enter_context(
        GatewayService(start.engine, images.gateway, start.owner, _calls(start), uplink)
    )
    gateway.load_scripts(render_scripts(start.task, start.references, agent))
    models = [
        *_scripted(start.references),
        *_served(start, gateway, stack),
        *_remote(start, gateway, stack),
        *replayed,
    ]
    if warning := wallet.unpriced(
        start.chosen.budget, {one.reference: one.price for one in models}
    ):
        start.say(f"warning: {warning}")
    _prove(start, images)
    record = _record(start, images, models)
    _deliver(start, gateway, record)
    start.store.save_trial(record)
    log = TrialLog(start.store.log_file, start.say)
    stack.callback(log.close)
    log.event("trial", people=f"trial {start.store.trial_id}: {len(record.plan)} runs")
    bench = Bench(
        engine=start.engine,
        images=images,
        task=start.task,
        data=start.data,
        gateway=gateway,
        agent=agent,
        models={reference.text: reference for reference in start.references},
        prices={model.reference: model.price for model in models if model.price is not None},
        recordings=start.replays.recordings,
        settings=start.chosen,
        store=start.store,
        log=log,
        gauges={model.reference: Gauge(counts_cached(model.server)) for model in models},
    )
    return bench, record


def _calls(start: _Start) -> CallSettings:
    return CallSettings(
        num_ctx=start.chosen.num_ctx,
        max_reply_tokens=start.task.defaults.max_reply_tokens,
        temperature=start.chosen.temperature,
        think=start.chosen.think,
        keep_alive=KEEP_ALIVE,
        total_s=start.task.limits.agent.wall_s,
    )


def _scripted(references: Sequence[ModelReference]) -> list[ModelRecord]:
    return [
        ModelRecord(reference=one.text, upstream="scripted", name=one.name)
        for one in references
        if one.kind is ModelKind.SCRIPTED
    ]


def _served(start: _Start, gateway: GatewayService, stack: ExitStack) -> list[ModelRecord]:
    """Make every Ollama model ready, from where the gateway stands, and say what was loaded."""
    if gateway.uplink is None or not any(one.needs_ollama for one in start.references):
        return []
    server = stack.enter_context(
        model_server(start.engine, gateway.uplink, start.owner, start.settings, start.say)
    )
    gateway.use_ollama(server.url)
    chosen = start.chosen
    with gateway.http(server.url) as http:
        ollama = Ollama(http, server.shown, can_pull=server.can_pull)
        ollama.wait_ready(SERVER_START_S if start.settings.ollama_url is None else 0)
        return [
            ollama.prepare(
                one, chosen.num_ctx, keep_alive=KEEP_ALIVE, think=chosen.think, say=start.say
            )
            for one in start.references
            if one.kind is ModelKind.OLLAMA
        ]


def _remote(start: _Start, gateway: GatewayService, stack: ExitStack) -> list[ModelRecord]:
    num_ctx = start.chosen.num_ctx
    own = own_model(start.settings, start.references)
    others = [one for one in start.references if one is not own]
    found = remote_models(start.settings, start.engine, others, num_ctx, gateway, stack)
    if own is not None:
        assert gateway.uplink is not None
        server = stack.enter_context(
            managed_smollm2(start.engine, gateway.uplink, start.owner, num_ctx, start.say)
        )
        found.append(prepare_own(own, server, num_ctx, gateway))
    return found


def _deliver(start: _Start, gateway: GatewayService, record: TrialRecord) -> None:
    """Give the gateway the recorded calls of every run that is a replay."""
    for spec in record.plan:
        if recording := start.replays.recordings.get(spec.model):
            calls = recording.store.calls(recording.run.spec.run_id)
            gateway.load_recording(spec.run_id, calls.read())
            for note in calls.notes:
                start.say(f"warning: {note}")


def _prove(start: _Start, images: Images) -> None:
    """Raises PreflightFailed where a container can reach what it must not."""
    with network.internal(start.engine, start.owner.as_role("probe")) as net:
        for where, place in (("the agents' network", net), ("a container without network", None)):
            found = prove_isolation(start.engine, images.tools.id, place, start.owner)
            if not found.closed:
                raise PreflightFailed(
                    f"isolation: from {where} something answers: {'; '.join(found.answered)}; "
                    "this engine can't keep submissions in (see the README on what isolates what)"
                )


def _record(start: _Start, images: Images, models: Sequence[ModelRecord]) -> TrialRecord:
    info = start.engine.info()
    by_reference = {model.reference: model for model in models}
    return TrialRecord(
        trial_id=start.store.trial_id,
        orch_version=__version__,
        created_at=datetime.now(UTC),
        task=start.task.name,
        task_sha256=start.task.fingerprint(),
        settings=start.chosen,
        data=start.data.record,
        images=images.records(),
        models=[by_reference[reference.text] for reference in start.references],
        engine={
            "version": info.version,
            "api": info.api,
            "storage_driver": info.storage_driver,
            "cgroup_version": str(info.cgroup_version),
            "operating_system": info.operating_system,
            "cpus": str(info.ncpu),
            "memory_bytes": str(info.memory_bytes),
        },
        plan=make_plan(
            [reference.text for reference in start.references],
            start.chosen.runs,
            start.chosen.seed,
            {text: one.run.spec.seed for text, one in start.replays.recordings.items()},
        ),
    )


def _interrupted(store: TrialStore) -> str:
    if not store.trial_file.is_file():
        return "interrupted before the first run"
    return f"interrupted; what is finished is kept: orch report {store.trial_id}"
