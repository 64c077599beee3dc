"""Models behind APIs, through gateway and agent containers; and where their key is to be found."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fake_apis import FakeApis
from model_lab import CALLS, Run, running
from test_trial import environment

from orchestrator.agents.native import BuiltinAgent
from orchestrator.config import Settings
from orchestrator.gateway.service import GatewayService, Uplink
from orchestrator.models.reference import parse_reference
from orchestrator.records.failures import FailureClass
from orchestrator.records.store import TrialStore
from orchestrator.sandbox import volume
from orchestrator.sandbox.container import Container, ContainerSpec
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import TRIAL, Owner
from orchestrator.trial.scripts import render_scripts
from orchestrator.trial.tasks import find_task
from orchestrator.trial.upstreams import remote_models

Images = Callable[[str], Image]
KEY = "sk-test-4f1d0c7a9b2e8d6f"
SEARCH = Owner("", role="test-search")
REPLY = "### FILE: explore.py\n````python\nprint('from the model')\n````\n"


def orch(
    home: Path, fake: FakeApis, models: str, *args: str, **env: str
) -> subprocess.CompletedProcess[str]:
    command = ["trial", "spam", "--models", models, "--runs", "1", "--scale", "0.02", "--json"]
    urls = ["--openai-url", fake.url, "--anthropic-url", fake.url]
    keys = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
    return subprocess.run(
        [sys.executable, "-m", "orchestrator.cli", *command, *urls, *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env=environment(home) | keys | env,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def fake() -> Iterator[FakeApis]:
    with FakeApis(key=KEY) as server:
        server.reply = REPLY
        yield server


# --- where the key is ----------------------------------------------------------------------


def places_of(engine: Engine, tools: str, key: str, trial: str) -> set[str]:
    """Kinds of places on the engine where the key of a trial can be read."""
    found = set()
    owned = engine.owned(trial)
    volumes = {one.id for one in owned if one.kind == "volume"}
    for one in owned:
        if one.kind != "container":
            continue
        details = engine.api.inspect_container(one.id)
        volumes |= {mount["Name"] for mount in details["Mounts"] if mount["Type"] == "volume"}
        if key in json.dumps(details):
            found.add("container")
        # A container of ours has no log at all.
        kept = details["HostConfig"]["LogConfig"]["Type"] != "none"
        if kept and key.encode() in engine.api.logs(one.id):
            found.add("log")
    for name in volumes:
        spec = ContainerSpec(tools, SEARCH, mounts=(volume.Volume(name).at("/v"),), user="0:0")
        with Container(engine, spec) as container:
            searched = container.exec(
                ("grep", "-r", "-q", "-F", "-f", "/dev/stdin", "/v"),
                timeout_s=60,
                stdin=key.encode(),
            )
        if searched.exit_code == 0:
            found.add("volume")
    return found


def told_by_events(engine: Engine, key: str, trial: str, since: int) -> bool:
    """Whether the key stands in what the engine tells of a trial's containers since then: their
    settings, and every command that was run in them."""
    label = {"label": f"{TRIAL}={trial}"}
    events = list(engine.api.events(since=since, until=int(time.time()) + 1, filters=label))
    assert events
    return any(key.encode() in event for event in events)


def files_with(folder: Path, key: str) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if key.encode() in _unpacked(path)]


def _unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


def test_the_search_finds_a_key(engine: Engine, tools: str, owner: Owner, tmp_path: Path) -> None:
    """Counter-check of the next test: in each place where it must not be, it would be found."""
    assert places_of(engine, tools, KEY, owner.trial) == set()
    (tmp_path / "record.json").write_text(json.dumps({"key": KEY}))
    (tmp_path / "calls.gz").write_bytes(gzip.compress(KEY.encode()))
    assert set(files_with(tmp_path, KEY)) == {tmp_path / "record.json", tmp_path / "calls.gz"}
    with Container(engine, ContainerSpec(tools, owner, env={"KEY": KEY})):
        assert places_of(engine, tools, KEY, owner.trial) == {"container"}
    since = int(time.time())
    with Container(engine, ContainerSpec(tools, owner)) as container:
        container.exec(("true",), timeout_s=30, stdin=KEY.encode())
        assert not told_by_events(engine, KEY, owner.trial, since)
        container.exec(("true", KEY), timeout_s=30)
        assert told_by_events(engine, KEY, owner.trial, since)
    half = len(KEY) // 2
    say = f"printf '%s%s\\n' {KEY[:half]} {KEY[half:]}"
    logged = engine.api.create_container(tools, ["sh", "-c", say], labels=owner.labels())
    engine.api.start(logged)
    engine.api.wait(logged)
    assert places_of(engine, tools, KEY, owner.trial) == {"log"}
    engine.api.remove_container(logged)
    held = volume.create(engine, owner)
    volume.fill(engine, tools, held, {"deep/inside": f"key={KEY}".encode()}, owner)
    assert places_of(engine, tools, KEY, owner.trial) == {"volume"}
    volume.remove(engine, held)


def newest(home: Path) -> str:
    return max((home / "runs").iterdir(), key=lambda folder: folder.stat().st_mtime).name


def replies(home: Path, engine: Engine, images: Images) -> list[str]:
    """What `scripted/careful` says, stage by stage: a model that does the task well."""
    task = find_task(Settings(home=home), "spam")
    agent = BuiltinAgent(engine, images("agent"))
    scripts = render_scripts(task, [parse_reference("scripted/careful")], agent)["careful"]
    stages = (scripts.get(stage.name) for stage in task.stage)
    return [turns[0] for turns in stages if turns]


@pytest.mark.parametrize(("kind", "paid_for"), [("openai", 3), ("anthropic", 5)])
def test_a_whole_trial_with_a_model_behind_an_api(
    engine: Engine, images: Images, tools: str, home: Path, fake: FakeApis, kind: str, paid_for: int
) -> None:
    """With a limit of the cost that is used up once so many replies are there, or with none."""
    said = replies(home, engine, images)
    fake.replies.extend(said)
    fake.thinking = "Let me think."
    searched: list[set[str]] = []
    there: list[set[str]] = []

    def search() -> None:
        """While a call is under way all is there: gateway, agent, volumes."""
        there.append({one.owner.role for one in engine.owned(newest(home))})
        searched.append(places_of(engine, tools, KEY, newest(home)))

    fake.on_call = search
    since = int(time.time())
    price = {f"{kind}/fake": {"input": 0.001, "output": 2000}}
    tokens = sum(len(text) // 4 for text in said[:paid_for])
    limit = ["--max-cost", str(tokens * 2000 / 1e6)] if paid_for < len(said) else []
    done = orch(home, fake, f"{kind}/fake", *limit, ORCH_PRICES=json.dumps(price))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    store = TrialStore(home / "runs" / summary["trial_id"])
    trial = store.load_trial()
    run = store.load_run(trial.plan[0].run_id)
    assert run.score is not None
    assert run.score.score > 0.3
    spent = [one.name for one in run.stages if one.failure and one.failure.reason == "cost"]
    if limit:
        assert run.failure is not None
        assert run.failure.failure_class is FailureClass.BUDGET_EXHAUSTED
        assert "US dollars" in run.failure.sentence
        assert spent == ["evaluate", "docs"]
    else:
        assert run.failure is None

    calls = list(store.calls(run.spec.run_id).read())
    path = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}[kind]
    sent = [body for body in fake.asked(path) if body.get("messages")]
    assert len(sent) == len(calls) == paid_for
    assert all(call.thinking == fake.thinking for call in calls)
    assert {body.get("seed") for body in sent} == {run.spec.seed if kind == "openai" else None}
    assert all(body["max_tokens"] > 0 and body["stream"] for body in sent)
    (model,) = trial.models
    assert (model.upstream, model.context_loaded) == (kind, None)
    assert "context not verifiable" in model.notes
    read = sum(call.prompt_tokens for call in calls)
    written = sum(call.reply_tokens for call in calls)
    assert summary["models"][0]["usage"]["cost"] == pytest.approx(
        (read * 0.001 + written * 2000) / 1e6
    )

    assert len(searched) == paid_for
    assert all(roles >= {"gateway", "records", "agent", "workspace"} for roles in there)
    assert set().union(*searched) == set()
    assert not told_by_events(engine, KEY, store.trial_id, since)
    assert files_with(home, KEY) == []
    assert KEY not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"OPENAI_API_KEY": "sk-another-key"}, "refuses the key in OPENAI_API_KEY (401)"),
        ({"OPENAI_API_KEY": ""}, "OPENAI_API_KEY is not set"),
        ({"ORCH_MODEL": "nope"}, "has no model 'nope'"),
        ({"ORCH_URL": "http://127.0.0.1:9"}, "no OpenAI API answers at http://127.0.0.1:9/v1"),
        ({"ORCH_CONTEXT": "2048"}, "with 2048 tokens of context"),
    ],
)
def test_what_is_refused_before_any_run(
    engine: Engine, home: Path, fake: FakeApis, change: dict[str, str], words: str
) -> None:
    env = dict(change)
    model = env.pop("ORCH_MODEL", "fake")
    url = env.pop("ORCH_URL", fake.url)
    context = env.pop("ORCH_CONTEXT", None)
    if context:
        fake.llamacpp_context = int(context)
    before = set((home / "runs").glob("*/trial.json"))
    done = orch(home, fake, f"openai/{model}", "--openai-url", url, "--num-ctx", "8192", **env)
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("orch: ")
    assert words in last
    assert "sk-" not in done.stderr
    assert set((home / "runs").glob("*/trial.json")) == before
    assert not [body for body in fake.asked("/v1/chat/completions") if body.get("messages")]


# --- faults, through the agent's container -------------------------------------------------


@pytest.fixture
def served(
    engine: Engine,
    images: Images,
    tools: str,
    owner: Owner,
    fake: FakeApis,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Run]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    settings = Settings(openai_url=fake.url)
    with (
        GatewayService(engine, images("gateway"), owner, CALLS, Uplink()) as service,
        running(engine, service, images("agent"), tools, owner) as run,
        ExitStack() as stack,
    ):
        remote_models(settings, engine, [parse_reference("openai/fake")], 4096, service, stack)
        yield run


FAULTS = {
    "cut": FailureClass.MODEL_SERVER_ERROR,
    "short": FailureClass.MODEL_SERVER_ERROR,
    "error-event": FailureClass.MODEL_SERVER_ERROR,
    "overflow": FailureClass.CONTEXT_OVERFLOW,
    "bad-key": FailureClass.MODEL_UNAVAILABLE,
    "quota": FailureClass.MODEL_UNAVAILABLE,
}


def test_half_a_reply_never_reaches_the_workspace(served: Run, fake: FakeApis, tools: str) -> None:
    for fault, failure_class in FAULTS.items():
        fake.faults.extend([fault] * 9)
        access = served.open("openai/fake")
        report = served.work(access)
        calls = served.gateway.close(access)
        fake.faults.clear()
        assert report.failure is not None
        assert report.failure.failure_class is failure_class, fault
        assert report.written == []
        assert KEY not in repr(report) + repr(calls)
    assert served.files(tools) == {"SPEC.md": "Do it.\n"}
    for fault in ("", "at-once", "no-done-mark"):
        fake.faults.append(fault)
        access = served.open("openai/fake")
        assert served.work(access).written == ["explore.py"]
        served.gateway.close(access)


def test_a_reply_that_the_provider_ended(served: Run, fake: FakeApis) -> None:
    found = {}
    for finish in ("length", "content_filter"):
        fake.finish = finish
        access = served.open("openai/fake")
        failure = served.work(access).failure
        served.gateway.close(access)
        assert failure is not None
        found[finish] = (failure.failure_class, failure.reason)
    assert found == {
        "length": (FailureClass.TRUNCATED_REPLY, "length"),
        "content_filter": (FailureClass.TRUNCATED_REPLY, "content-filter"),
    }
