"""The doctor and the preflight against the engine that is here."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.config import Settings
from orchestrator.sandbox import volume
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.labels import Owner
from orchestrator.trial.checks import Status
from orchestrator.trial.doctor import run_doctor
from orchestrator.trial.gather import gather
from orchestrator.trial.lease import Lease


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.connect()


@pytest.fixture
def abandoned(engine: Engine, tmp_path: Path) -> Iterator[str]:
    """A volume of a trial recorded under `tmp_path` that no process works on."""
    trial = f"doctor-{secrets.token_hex(4)}"
    (tmp_path / "runs" / trial).mkdir(parents=True)
    (tmp_path / "runs" / trial / "trial.json").write_text("{}")
    made = volume.create(engine, Owner(trial, role="workspace"))
    yield trial
    volume.remove(engine, made)


def settings(home: Path) -> Settings:
    return Settings(home=home)


def test_the_engine_is_described_as_it_is(engine: Engine, tmp_path: Path) -> None:
    facts = gather(settings(tmp_path), tasks=[])
    assert facts.engine_problem == ""
    assert facts.engine is not None
    assert facts.engine.info.version == engine.info().version
    assert {image.name for image in facts.engine.images} >= {"base", "tools"}
    assert facts.engine.info.system_time is not None
    checks = {check.name: check for check in run_doctor(settings(tmp_path))}
    for name in ("python", "clock", "records", "engine", "cgroup", "left-overs"):
        assert checks[name].status is Status.OK, checks[name]
    assert facts.engine.info.version in checks["engine"].found


def test_what_a_dead_trial_left_is_found(abandoned: str, tmp_path: Path) -> None:
    found = {check.name: check for check in run_doctor(settings(tmp_path))}["left-overs"]
    assert found.status is Status.WARN
    assert found.found == f"1 volume of {abandoned}"
    assert "orch clean" in found.mend


def test_what_a_living_trial_uses_is_no_left_over(abandoned: str, tmp_path: Path) -> None:
    with Lease(tmp_path / "runs", abandoned):
        found = {check.name: check for check in run_doctor(settings(tmp_path))}["left-overs"]
    assert found.status is Status.OK
