"""What every agent must do, tried in real containers: `orch agents check NAME`.

A stage that goes well, and stages whose model fails; each in a workspace of its own, started and
reviewed as in a run. The findings are plain data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.agents import registry
from orchestrator.agents.base import Aftermath, Agent, AgentJob, AgentReport
from orchestrator.config import Settings
from orchestrator.gateway.service import CallSettings, GatewayService, Uplink
from orchestrator.models.reference import parse_reference
from orchestrator.records.calls import without_messages
from orchestrator.records.failures import FailureClass
from orchestrator.records.schema import FileChange
from orchestrator.sandbox import network, volume
from orchestrator.sandbox.container import Container, ContainerSpec
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.history import History
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.task import LimitSets
from orchestrator.trial.checks import Check
from orchestrator.trial.judge import judge_agent_stage
from orchestrator.trial.landed import lost
from orchestrator.trial.log import Say
from orchestrator.trial.session import session, session_name
from orchestrator.trial.tools import Images, trial_images

SERVER = (Path(volume.__file__).parent / "sent" / "failing_server.py").read_text()
SERVER_LIMITS = Limits(memory_mb=128, cpus=1, pids=64, tmp_mb=4)
SERVER_PORT = 8080
CALLS = CallSettings(num_ctx=8192, max_reply_tokens=2048, silence_s=600, total_s=600)
STAGE = "check"
FILES = {"notes.md": "# Notes\n\nTwo lines.\n", "pkg/tool.py": "def run():\n    return 1\n"}
PROSE = "I would begin with notes.md, and then see.\n"
DEADLINE_S = 20.0
AFTER_DEADLINE_S = 30.0
"""For the container to be gone, on a machine that has other work."""
PATIENCE_S = 180.0
"""No agent may go on longer with a model that does not answer."""


@dataclass(frozen=True)
class Outcome:
    """What a stage left, and its verdict's class and sentence; "" where nothing failed."""

    report: AgentReport
    changes: list[FileChange]
    content: dict[str, bytes]
    failure_class: FailureClass | None
    sentence: str
    duration_s: float
    left: list[str]
    """Containers beside those that serve models."""

    @property
    def told(self) -> str:
        return f"{self.failure_class}: {self.sentence}" if self.failure_class else "no failure"


def check_agent(settings: Settings, name: str, say: Say) -> Iterator[Check]:
    """One finding after the other. Raises UsageError for an agent there is not, the engine's
    errors, and those of building an image."""
    image = registry.image_of(name)
    engine = Engine.connect()
    with ExitStack() as stack:
        owner = stack.enter_context(session(settings, engine, session_name("agent"), say))
        images = trial_images(engine, image, say)
        agent = registry.make(name, engine, images.agent)
        with _place(engine, images, agent, owner) as place:
            for what, judged in TRIALS:
                say(f"checks that it {what}")
                yield judged(place, what)


class Place:
    """Where stages are tried: a gateway with scripted replies, and a server that fails."""

    def __init__(
        self, engine: Engine, images: Images, agent: Agent, gateway: GatewayService, owner: Owner
    ) -> None:
        self.engine = engine
        self.images = images
        self.agent = agent
        self.gateway = gateway
        self.owner = owner

    def say(self, reply: str) -> None:
        """What the scripted model answers from now on."""
        self.gateway.load_scripts({"check": {STAGE: {0: reply}}})

    def stage(self, model: str, wall_s: float = PATIENCE_S) -> Outcome:
        """One stage in a fresh workspace, judged as a run judges it."""
        limits = LimitSets().agent.model_copy(update={"wall_s": wall_s})
        owner = Owner(self.owner.trial, run="check")
        with ExitStack() as stack:
            workspace = volume.create(self.engine, owner.as_role("workspace"))
            stack.callback(volume.remove, self.engine, workspace)
            net = stack.enter_context(network.internal(self.engine, owner.as_role("agent")))
            self.gateway.attach(net)
            history = History(Path(stack.enter_context(TemporaryDirectory())) / "history.git")

            def snapshot(message: str) -> str:
                tools = self.images.tools.id
                return history.snapshot(self.engine, tools, workspace, message, owner).id

            before, began = snapshot("before"), time.monotonic()
            access = self.gateway.open(
                run="check", stage=STAGE, turn=0, model=parse_reference(model), seed=1, network=net
            )
            job = AgentJob("Write notes.md.", workspace, net, access, limits, owner)
            report = self.agent.run_stage(job)
            duration_s = time.monotonic() - began
            calls = [without_messages(call) for call in self.gateway.close(access)]
            after = snapshot("after")
            content, changes = history.extract(after), history.changes(before, after)
            report = self.agent.review(report, Aftermath(calls, changes, content.get), STAGE)
            present = history.files(after)
            failure = judge_agent_stage(
                stage=STAGE,
                expects=(),
                present=present.keys(),
                changes=changes,
                announced=report.written,
                lost=lost(report.written, report.blobs, present),
                dropped=report.dropped,
                reported=report.failure,
            )
            owned = self.engine.owned(self.owner.trial)
            left = [one.name for one in owned if one.kind == "container" and one.owner.run]
        return Outcome(
            report,
            changes,
            content,
            failure.failure_class if failure else None,
            failure.sentence if failure else "",
            duration_s,
            left,
        )


@contextmanager
def _place(engine: Engine, images: Images, agent: Agent, owner: Owner) -> Iterator[Place]:
    with GatewayService(engine, images.gateway, owner, CALLS, Uplink()) as gateway:
        assert gateway.uplink is not None
        spec = ContainerSpec(
            image=images.tools.id,
            owner=owner.as_role("failing-server"),
            limits=SERVER_LIMITS,
            network=gateway.uplink.id,
            command=("python3", "-I", "-S", "-c", SERVER),
        )
        with Container(engine, spec) as server:
            gateway.use_ollama(f"http://{server.name}:{SERVER_PORT}")
            yield Place(engine, images, agent, gateway, owner)


def _check(what: str, wrong: list[str], found: str) -> Check:
    return Check.fail(what, "; ".join(wrong)) if wrong else Check.ok(what, found)


def _wrong(outcome: Outcome) -> list[str]:
    return [f"left running: {', '.join(outcome.left)}"] if outcome.left else []


def writes_files(place: Place, what: str) -> Check:
    place.say(place.agent.render_scripted("As asked.", FILES))
    outcome = place.stage("scripted/check")
    wrong = _wrong(outcome)
    if outcome.failure_class is not None:
        wrong.append(outcome.told)
    wrong += [
        f"{path} is not as the reply has it"
        for path, text in FILES.items()
        if outcome.content.get(path) != text.encode()
    ]
    wrong += [f"left {path} beside them" for path in sorted(outcome.content.keys() - FILES.keys())]
    return _check(what, wrong, f"{', '.join(FILES)} in {outcome.duration_s:.0f} s")


def says_when_nothing_came(place: Place, what: str) -> Check:
    place.say(PROSE)
    outcome = place.stage("scripted/check")
    wrong = _wrong(outcome)
    if outcome.failure_class is not FailureClass.NO_EDITS:
        wrong.append(f"a reply of prose came out as {outcome.told}")
    return _check(what, wrong, outcome.told)


def says_what_it_cut(place: Place, what: str) -> Check:
    """A reply that ends in the middle of its last file, and claims to be whole."""
    whole = place.agent.render_scripted("", FILES)
    place.say(whole[: whole.rindex("    return 1")])
    outcome = place.stage("scripted/check")
    wrong = _wrong(outcome)
    if outcome.failure_class is not FailureClass.TRUNCATED_REPLY:
        wrong.append(f"half a file came out as {outcome.told}")
    return _check(what, wrong, outcome.told)


def survives(model: str, expected: FailureClass) -> Callable[[Place, str], Check]:
    def check(place: Place, what: str) -> Check:
        outcome = place.stage(model)
        wrong = _wrong(outcome)
        if outcome.failure_class is not expected:
            wrong.append(f"it came out as {outcome.told}")
        wrong += [f"{change.path} was written" for change in outcome.changes]
        return _check(what, wrong, f"{outcome.told} after {outcome.duration_s:.0f} s")

    return check


def honours_its_deadline(place: Place, what: str) -> Check:
    outcome = place.stage("hang", DEADLINE_S)
    wrong = _wrong(outcome)
    if outcome.failure_class is not FailureClass.TIMEOUT:
        wrong.append(f"it came out as {outcome.told}")
    if outcome.duration_s > DEADLINE_S + AFTER_DEADLINE_S:
        wrong.append(f"it took {outcome.duration_s:.0f} s of {DEADLINE_S:.0f}")
    return _check(what, wrong, f"gone after {outcome.duration_s:.0f} s")


TRIALS: tuple[tuple[str, Callable[[Place, str], Check]], ...] = (
    ("writes files", writes_files),
    ("says when nothing came", says_when_nothing_came),
    ("says what was cut", says_what_it_cut),
    ("survives a missing model", survives("gone", FailureClass.MODEL_UNAVAILABLE)),
    ("survives a cut stream", survives("cut", FailureClass.MODEL_SERVER_ERROR)),
    ("honours its deadline", honours_its_deadline),
)
"""In each, it leaves no container behind."""
