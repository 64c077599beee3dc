"""Each check against the facts that turn it, and how checks are shown."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from doctor_samples import (
    FACTS,
    HOST,
    NOW,
    OLLAMA,
    with_engine,
    with_host,
    with_info,
    with_ollama,
)
from rich.console import Console

from orchestrator.config import Settings
from orchestrator.models.ollama import GIB, Loaded
from orchestrator.sandbox.engine import Owned
from orchestrator.sandbox.labels import Owner
from orchestrator.trial.checks import Check, Status
from orchestrator.trial.doctor import failed, judge, render_checks, run_doctor
from orchestrator.trial.facts import Facts, ImageFact, Needs
from orchestrator.trial.gather import host_facts, ollama_facts, task_needs

MANAGED = replace(FACTS, ollama_given=False)
NO_GPU = with_info(MANAGED, runtimes=("runc",))
UNBUILT = (ImageFact("base", True, 700), ImageFact("scorer", False, 1000))
BARE_HOST = {"commands": frozenset({"docker", "docker buildx"})}
LEFT = Owned("container", "c1", "orch-x", Owner("spam-1", "", "scorer"))


def check(facts: Facts, name: str) -> Check:
    (found,) = [check for check in judge(facts) if check.name == name]
    return found


def needing(facts: Facts = FACTS, *, memory_mb: int = 4096, model_gib: int = 0) -> Facts:
    models = {"big": model_gib * GIB} if model_gib else {}
    return replace(facts, needs=Needs(memory_mb, 2.0, models))


def test_all_is_well_on_a_good_machine() -> None:
    assert [(c.name, c.status) for c in judge(FACTS) if c.status is not Status.OK] == []
    assert all(c.found and not c.mend for c in judge(FACTS))


TURNING: dict[str, tuple[Facts, str, Status, str]] = {
    # what: facts, check, status, words of what was found or mends it
    "old Python": (with_host(python=(3, 10, 4)), "python", Status.FAIL, "3.11 or newer"),
    "newest tested Python": (with_host(python=(3, 13, 1)), "python", Status.OK, "3.13.1"),
    "untested Python": (with_host(python=(3, 14, 0)), "python", Status.WARN, "newer than"),
    "clock in the past": (
        with_host(now=HOST.own_files - timedelta(days=2)), "clock", Status.FAIL, "before",
    ),
    "clock behind a little": (
        with_host(now=HOST.own_files - timedelta(hours=12)), "clock", Status.OK, "2026-01-31",
    ),
    "engine's clock stopped": (
        with_info(system_time=NOW - timedelta(hours=1)), "clock", Status.WARN, "-3600 s off",
    ),
    "engine's clock near": (
        with_info(system_time=NOW + timedelta(seconds=29)), "clock", Status.OK, "2026",
    ),
    "engine tells no clock": (with_info(system_time=None), "clock", Status.OK, "2026"),
    "read-only records": (
        with_host(runs_problem="/home can't be written to"), "records", Status.FAIL, "ORCH_HOME",
    ),
    "full disk for records": (
        with_host(runs_free_bytes=100 << 20), "records", Status.WARN, "100 MiB free",
    ),
    "named CA is missing": (
        with_host(ca_missing={"PIP_CERT": "/none.pem"}), "network", Status.WARN, "unset PIP_CERT",
    ),
    "proxy": (
        with_host(proxies={"https_proxy": "http://proxy:3128"}), "network", Status.OK, "proxy:3128",
    ),
    "proxy on loopback": (
        with_host(proxies={"http_proxy": "http://127.0.0.1:3128"}), "network", Status.WARN,
        "let http_proxy name",
    ),
    "proxy on loopback without a scheme": (
        with_host(proxies={"http_proxy": "localhost:3128"}), "network", Status.WARN, "loopback",
    ),
    "no_proxy names loopback, as it should": (
        with_host(proxies={"no_proxy": "localhost,127.0.0.1"}), "network", Status.OK, "localhost",
    ),
    "a broken task": (
        replace(FACTS, tasks_problem="x/task.toml: bad"), "tasks", Status.FAIL, "x/task.toml",
    ),
    "slow storage": (with_info(storage_driver="vfs"), "storage", Status.WARN, "overlay2"),
    "containerd's storage": (with_info(storage_driver="overlayfs"), "storage", Status.OK, "over"),
    "disk not seen": (with_info(free_bytes=None), "space", Status.WARN, "can't be seen"),
    "disk full": (with_info(free_bytes=2 * GIB), "space", Status.FAIL, "orch clean"),
    "disk nearly full": (with_info(free_bytes=5 * GIB), "space", Status.WARN, "5.0 GiB free"),
    "disk full for missing images": (
        with_engine(with_info(free_bytes=int(3.5 * GIB)), images=UNBUILT), "space", Status.FAIL,
        "1000 MiB of it for images",
    ),
    "cgroup v1": (with_info(cgroup_version=1), "cgroup", Status.OK, "1"),
    "no cgroup": (with_info(cgroup_version=0), "cgroup", Status.FAIL, "v1 or v2"),
    "no gVisor": (with_info(default_runtime="runc"), "runtime", Status.OK, "gVisor (runsc) is not"),
    "gVisor here": (
        with_info(runtimes=("runc", "runsc")), "runtime", Status.OK, "is here: --runtime runsc",
    ),
    "gVisor asked for and here": (
        replace(with_info(runtimes=("runc", "runsc")), runtime="runsc"), "runtime", Status.OK,
        "under runsc",
    ),
    "gVisor asked for and not here": (
        replace(FACTS, runtime="runsc"), "runtime", Status.FAIL,
        "no runtime 'runsc'; it has: nvidia, runc",
    ),
    "too few CPUs": (with_info(ncpu=1), "cpus", Status.FAIL, "lower cpus"),
    "just enough CPUs": (with_info(ncpu=2), "cpus", Status.OK, "2"),
    "memory below a scorer": (
        with_info(memory_bytes=3 * GIB), "memory", Status.FAIL, "lower memory_mb",
    ),
    "memory just for a scorer": (
        needing(with_info(memory_bytes=4 * GIB)), "memory", Status.WARN, "tight",
    ),
    "model beside a scorer fits": (needing(model_gib=20), "memory", Status.OK, "big takes 20.0"),
    "model beside a scorer is too much": (
        needing(model_gib=30), "memory", Status.WARN, "a smaller model is safer",
    ),
    "model larger than memory, no GPU": (
        needing(NO_GPU, model_gib=40), "memory", Status.FAIL, "can't be loaded",
    ),
    "model larger than memory, with a GPU": (
        needing(MANAGED, model_gib=40), "memory", Status.WARN, "GPU can't hold",
    ),
    "model of an Ollama elsewhere": (
        needing(with_ollama(url="http://gpubox:11434"), model_gib=40), "memory", Status.OK, "32.0",
    ),
    "model beside a virtual machine": (
        needing(with_info(operating_system="Docker Desktop"), model_gib=40), "memory", Status.OK,
        "32.0 GiB",
    ),
    "images to build": (with_engine(images=UNBUILT), "images", Status.WARN, "orch images build"),
    "images and nothing to build them": (
        with_host(with_engine(images=UNBUILT), commands=frozenset()), "images", Status.FAIL,
        "buildx plugin",
    ),
    "an image that can't be built": (
        with_engine(images=(ImageFact("base", False, 0, "Dockerfile is missing"),)), "images",
        Status.FAIL, "Dockerfile is missing",
    ),
    "GPU by runtime": (MANAGED, "gpu", Status.OK, "NVIDIA runtime"),
    "GPU by CDI": (
        with_info(MANAGED, runtimes=("runc",), cdi_devices=("nvidia.com/gpu=all",)), "gpu",
        Status.OK, "CDI",
    ),
    "other CDI devices are no GPU": (
        with_info(NO_GPU, cdi_devices=("vendor.com/net=x",)), "gpu", Status.WARN, "CPU",
    ),
    "no GPU, no driver": (
        with_host(NO_GPU, **BARE_HOST), "gpu", Status.WARN, "--gpu off",
    ),
    "no GPU runtime, driver only": (
        with_host(NO_GPU, commands=frozenset({"nvidia-smi"})), "gpu", Status.WARN,
        "the NVIDIA container toolkit is not",
    ),
    "no GPU runtime, toolkit here": (NO_GPU, "gpu", Status.WARN, "the toolkit is here"),
    "GPU demanded in a way that is not there": (
        replace(MANAGED, gpu="cdi"), "gpu", Status.FAIL, "gpu = cdi",
    ),
    "GPU demanded and there": (replace(MANAGED, gpu="legacy"), "gpu", Status.OK, "runtime"),
    "GPU off": (replace(NO_GPU, gpu="off"), "gpu", Status.OK, "off by setting"),
    "GPU of a named Ollama": (with_info(runtimes=("runc",)), "gpu", Status.OK, "uses what it has"),
    "named Ollama does not answer": (
        with_ollama(problem="no Ollama answers at http://x"), "ollama", Status.FAIL, "http://x",
    ),
    "no Ollama named, image here": (
        with_ollama(MANAGED, problem="refused"), "ollama", Status.OK, "orch starts the pinned",
    ),
    "no Ollama named, no image": (
        replace(with_ollama(MANAGED, problem="refused"), ollama_image_here=False), "ollama",
        Status.WARN, "pull the image",
    ),
    "a folder of models that is none": (
        replace(with_ollama(MANAGED, problem="refused"), ollama_models_problem="/x: no folder"),
        "ollama", Status.FAIL, "/x: no folder",
    ),
    "an Ollama that was not named": (MANAGED, "ollama", Status.OK, "with --ollama-url only"),
    "many models": (
        with_ollama(models=dict.fromkeys("fedcba", 1)), "ollama", Status.OK,
        "holds a, b, c, d and 2 more",
    ),
    "no models": (with_ollama(models={}), "ollama", Status.OK, "holds no models yet"),
    "old Ollama": (with_ollama(version="0.19.2"), "ollama", Status.WARN, "0.20 or newer"),
    "a first good Ollama": (with_ollama(version="0.20.0-rc1"), "ollama", Status.OK, "0.20.0"),
    "Ollama built from source": (with_ollama(version="0.0.0"), "ollama", Status.OK, "0.0.0"),
    "loaded models": (
        with_ollama(loaded=(Loaded("gpt-oss:20b", 4096, "58%/42% CPU/GPU"),)), "context", Status.OK,
        "gpt-oss:20b with 4096 tokens of context on 58%/42% CPU/GPU; the default",
    ),
    "left-overs": (
        with_engine(left_overs=(LEFT, LEFT)), "left-overs", Status.WARN, "2 containers of spam-1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TURNING)
def test_check(what: str) -> None:
    facts, name, status, words = TURNING[what]
    found = check(facts, name)
    assert found.status is status
    assert words in f"{found.found} {found.mend}"
    assert bool(found.mend) == (status is not Status.OK)


def test_every_check_that_can_turn_is_in_the_table() -> None:
    turning = {name for _, name, status, _ in TURNING.values() if status is not Status.OK}
    assert {c.name for c in judge(FACTS)} - turning == {"engine", "context"}


def test_without_an_engine_the_rest_is_still_said() -> None:
    facts = replace(FACTS, engine=None, engine_problem="No container engine at unix:///x.")
    found = judge(facts)
    assert [c.name for c in failed(found)] == ["engine"]
    assert "unix:///x" in check(facts, "engine").found
    assert {"python", "network", "ollama"} <= {c.name for c in found}


@pytest.mark.parametrize(
    "proxy", ["http://user:secret@proxy:3128", "user:secret@proxy:3128", "http://secret@proxy"]
)
def test_no_password_of_a_proxy_is_shown(proxy: str) -> None:
    found = check(with_host(proxies={"https_proxy": proxy}), "network").found
    assert "secret" not in found
    assert "***@proxy" in found


@pytest.mark.parametrize("width", [80, 120])
def test_checks_are_shown_within_the_width_and_inert(width: int) -> None:
    facts = with_ollama(with_info(NO_GPU, operating_system="x\x1b[31m[red]y[/red]"), version="\x9b")
    stream = io.StringIO()
    render_checks(judge(facts), Console(file=stream, width=width))
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert all(char == "\n" or char.isprintable() for char in text)
    assert "x[red]y[/red]" in text
    assert "warn" in text
    assert "mend: the toolkit is here" in text


def test_doctor_looks_at_a_machine_without_engine_and_ollama(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    settings = Settings(home=tmp_path, ollama_url="http://127.0.0.1:1")
    found = {c.name: c for c in run_doctor(settings)}
    assert found["engine"].status is Status.FAIL
    assert "none.sock" in found["engine"].found
    assert found["ollama"].status is Status.FAIL
    assert "http://127.0.0.1:1" in found["ollama"].found
    assert found["records"].status is Status.OK
    assert not (tmp_path / "runs").exists()


def test_a_records_folder_under_a_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    assert "is no folder" in host_facts(tmp_path / "home" / "runs").runs_problem


def test_a_ca_variable_that_names_nothing_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.delenv("PIP_CERT", raising=False)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    assert host_facts(tmp_path).ca_missing == {"SSL_CERT_FILE": str(tmp_path / "none.pem")}


def test_needs_without_tasks_are_the_default_limits() -> None:
    assert task_needs([], {}).memory_mb == 4096


ANSWERS = {
    "/api/version": {"version": "0.34.0"},
    "/api/tags": {"models": [{"name": "gpt-oss:20b", "size": 14 * GIB}]},
    "/api/ps": {
        "models": [
            {"name": "gpt-oss:20b", "size": 100, "size_vram": 40, "context_length": 4096},
            {"name": "old", "size": 0},
        ]
    },
}


@pytest.fixture
def server(request: pytest.FixtureRequest) -> str:
    answers = request.param

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answers.get(self.path)
            self.send_response(200 if body is not None else 404)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *args: object) -> None:
            pass

    httpd = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    request.addfinalizer(httpd.server_close)
    request.addfinalizer(httpd.shutdown)
    return f"http://127.0.0.1:{httpd.server_port}"


@pytest.mark.parametrize("server", [ANSWERS], indirect=True)
def test_ollama_is_asked_for_all_three(server: str) -> None:
    found = ollama_facts(server)
    assert found == replace(
        OLLAMA,
        url=server,
        loaded=(Loaded("gpt-oss:20b", 4096, "60%/40% CPU/GPU"), Loaded("old", None, None)),
    )


@pytest.mark.parametrize(
    "server", [{}, {"/api/version": b"<html>"}, {"/api/version": []}], indirect=True
)
def test_another_server_is_no_ollama(server: str) -> None:
    assert server in ollama_facts(server).problem


@pytest.mark.parametrize("url", ["nonsense", "http://", "ftp://x", "http://127.0.0.1:99999"])
def test_an_address_that_is_none_is_a_finding(url: str) -> None:
    assert ollama_facts(url).problem
