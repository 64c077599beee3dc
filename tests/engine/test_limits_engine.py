"""Limits on calls, replies and runs, through the containers: whole trials against the fake."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_ollama import FakeModel, FakeOllama
from model_lab import CALLS, Run, ask, running
from test_trial import SCALE, orch

from orchestrator.gateway.service import GatewayService, Uplink
from orchestrator.models.reference import parse_reference
from orchestrator.models.relay import route
from orchestrator.records.schema import AgentStage, RunRecord
from orchestrator.records.store import TrialStore, list_trials
from orchestrator.sandbox.container import Container, ContainerSpec
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner
from orchestrator.trial.truncation import Gauge

Images = Callable[[str], Image]

FILES = {
    "explore.py": "print('rows: many')\n",
    "DECISIONS.md": "Nothing is spam.\n",
    "requirements.txt": "",
    "train.py": "open('model.txt', 'w').write('0')\n",
    "predict.py": """\
import csv, sys
args = dict(zip(sys.argv[1::2], sys.argv[2::2]))
label = open('model.txt').read()
with open(args['--input'], newline='') as given, open(args['--output'], 'w', newline='') as out:
    writer = csv.writer(out)
    writer.writerow(['message_id', 'label'])
    writer.writerows([row['message_id'], label] for row in csv.DictReader(given))
""",
    "EVALUATION.md": "Expected F1: 0.1\n",
    "README.md": "Run train.py, then predict.py.\n",
}
REPLY = "\n".join(f"### FILE: {path}\n````\n{text}````\n" for path, text in FILES.items())


@pytest.fixture
def fake() -> Iterator[FakeOllama]:
    with FakeOllama(FakeModel("tiny:1b")) as server:
        server.reply = REPLY
        yield server


def trial(
    home: Path, fake: FakeOllama, *more: str
) -> tuple[subprocess.CompletedProcess[str], RunRecord | None]:
    """One run of the fake's model: what the command said, and the run's record."""
    done = orch(
        home, "trial", "spam", "--models", "tiny:1b", "--runs", "1", "--scale", SCALE,
        "--ollama-url", fake.url, "--json", *more,
    )  # fmt: skip
    if not done.stdout:
        return done, None
    store = TrialStore(home / "runs" / json.loads(done.stdout)["trial_id"])
    (spec,) = store.load_trial().plan
    return done, store.load_run(spec.run_id)


def stages(run: RunRecord | None) -> dict[str, str]:
    """Agent stage → class of its failure, empty where there is none."""
    assert run is not None
    return {
        stage.name: str(stage.failure.failure_class) if stage.failure else ""
        for stage in run.stages
        if isinstance(stage, AgentStage)
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def test_each_way_to_use_up_a_limit_and_the_submission_is_scored(
    engine: Engine, home: Path, fake: FakeOllama
) -> None:
    # The first request only loads the model.
    fake.faults.extend(["", "think-only", "", "loop"])
    done, run = trial(home, fake, "--max-calls", "4", "--think", "high")
    assert done.returncode == 0, done.stderr
    assert stages(run) == {
        "explore": "reasoning-exhausted",
        "decide": "",
        "implement": "runaway-generation",
        "evaluate": "",
        "docs": "budget-exhausted",
    }
    assert run is not None
    # What was whole in the reply without end was kept, so that there is something to score.
    assert run.score is not None
    assert run.score.failure is None
    assert run.score.predictions_sha256 is not None
    assert run.failure is not None
    assert run.failure.failure_class == "budget-exhausted"
    assert run.usage.calls == 4
    assert run.usage.reasoning_tokens > 0
    (model,) = json.loads(done.stdout)["models"]
    assert (model["valid"], model["scored"]) == (1, 1)
    assert len(fake.asked("/api/chat")) == 4
    assert {body["think"] for body in fake.asked("/api/chat")} == {"high"}
    text = orch(home, "report", "latest").stdout
    assert "scored, budget-exhausted" in " ".join(text.split())
    assert "100% GPU (12.8 GiB of VRAM), loaded in" in " ".join(text.split())
    assert "tokens written were reasoning" in " ".join(text.split())


def test_a_prompt_that_was_cut_in_silence_ends_the_run(
    engine: Engine, home: Path, fake: FakeOllama
) -> None:
    fake.hidden_context = 2048
    done, run = trial(home, fake)
    assert done.returncode == 1, done.stderr
    assert stages(run) == {"explore": "", "decide": "", "implement": "context-truncated"}
    assert run is not None
    assert run.score is None
    assert run.failure is not None
    excerpts = [item.excerpt for item in run.failure.evidence]
    assert "call 0: context asked: 32768" in excerpts
    assert "call 0: tokens counted: 1026" in excerpts
    assert "what a context of 2048 leaves" in excerpts[-1]
    (model,) = json.loads(done.stdout)["models"]
    assert (model["valid"], len(model["harness"])) == (0, 1)


def test_without_a_limit_the_same_model_is_asked_to_the_end(
    engine: Engine, home: Path, fake: FakeOllama
) -> None:
    done, run = trial(home, fake)
    assert done.returncode == 0, done.stderr
    assert set(stages(run).values()) == {""}
    assert run is not None
    assert run.failure is None
    assert run.usage.calls == 5
    assert all("think" not in body for body in fake.asked("/api/chat"))


def test_what_the_model_server_can_not_give_refuses_the_trial(
    engine: Engine, home: Path, fake: FakeOllama
) -> None:
    before = list_trials(home / "runs")
    fake.context_cap = 4096
    done, _ = trial(home, fake)
    assert done.returncode == 2
    assert "loaded tiny:1b with 4096 tokens of context though 32768 were" in done.stderr
    fake.context_cap = None
    fake.models["tiny:1b"].thinks = False
    done, _ = trial(home, fake, "--think", "low")
    assert done.returncode == 2
    assert "tiny:1b does not think; leave --think low away" in done.stderr
    assert list_trials(home / "runs") == before


# --- the gateway's container -----------------------------------------------------------------


@pytest.fixture
def run(
    engine: Engine, images: Images, tools: str, owner: Owner, fake: FakeOllama
) -> Iterator[Run]:
    with GatewayService(engine, images("gateway"), owner, CALLS, Uplink()) as service:
        assert service.uplink is not None
        with (
            route(fake.url, engine.info(), service.uplink.subnet) as url,
            running(engine, service, images("agent"), tools, owner) as one,
        ):
            service.use_ollama(url)
            yield one


def test_messages_that_were_dropped_are_missed_in_the_count(
    run: Run, images: Images, fake: FakeOllama
) -> None:
    fake.reply = "Yes.\n"
    words = "read the column and decide what to do with it then write that down " * 60
    messages = [{"role": "user", "content": f"{n} {words}"} for n in range(10)]
    body: dict[str, Any] = {"model": "tiny:1b", "messages": messages}
    for hidden, cut in ((None, False), (3000, True)):
        fake.hidden_context = hidden
        access = run.open("tiny:1b")
        with Container(
            run.engine, ContainerSpec(images("agent").id, run.owner, network=run.net.id)
        ) as box:
            for number in range(1, 11):
                status, _ = ask(box, access, "/api/chat", body | {"messages": messages[:number]})
                assert status in (200, 400)
        calls = run.gateway.close(access)
        failure = Gauge().examine(calls, "s")
        assert (failure is not None) is cut
        if failure is not None:
            assert failure.failure_class == "context-truncated"
            assert "whole messages were dropped" in failure.evidence[-1].excerpt


def test_the_wallet_goes_along_with_the_run_and_not_with_the_gateway(
    run: Run, images: Images
) -> None:
    def opened(used: int) -> Any:
        return run.gateway.open(
            run="r1", stage="s", turn=0, model=parse_reference("tiny:1b"), seed=1,
            network=run.net, wallet={"limits": {"calls": 3}, "used": {"calls": used}},
        )  # fmt: skip

    body = {"model": "tiny:1b", "messages": [{"role": "user", "content": "Hello?"}]}
    spec = ContainerSpec(images("agent").id, run.owner, network=run.net.id)
    with Container(run.engine, spec) as box:
        access = opened(2)
        status, text = ask(box, access, "/wallet", method="GET")
        assert (status, json.loads(text)["left"]["calls"]) == (200, 1)
        assert ask(box, access, "/api/chat", body)[0] == 200
        status, text = ask(box, access, "/api/chat", body)
        assert (status, json.loads(text)["error"][:16]) == (402, "budget-exhausted")
        assert [len(call.attempts) for call in run.gateway.close(access)] == [1, 0]
        # Whatever the gateway has seen before, what it is told counts.
        assert ask(box, opened(3), "/api/chat", body)[0] == 402
        assert ask(box, opened(0), "/api/chat", body)[0] == 200
