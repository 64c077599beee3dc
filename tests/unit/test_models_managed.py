"""The Ollama that orch starts: how it gets a GPU, its settings, its models."""

import os
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from test_models_relay import LINUX

from orchestrator.config import Settings
from orchestrator.errors import GpuUnavailable, UsageError
from orchestrator.models.managed import choose_gpu, environment, limits, models_folder, reader_of
from orchestrator.sandbox.container import Gpu
from orchestrator.sandbox.engine import Engine

LEGACY = replace(LINUX, runtimes=("nvidia", "runc"))
CDI = replace(LINUX, cdi_devices=("nvidia.com/gpu=0", "nvidia.com/gpu=all"))
OTHER_CDI = replace(LINUX, cdi_devices=("example.com/nic=0",))


def test_the_gpu_as_the_engine_can_give_it() -> None:
    assert choose_gpu("auto", LEGACY) == Gpu("legacy")
    assert choose_gpu("auto", CDI) == Gpu("cdi")
    assert choose_gpu("auto", replace(CDI, runtimes=("nvidia",))) == Gpu("legacy")
    assert choose_gpu("cdi", replace(CDI, runtimes=("nvidia",))) == Gpu("cdi")
    assert choose_gpu("auto", LINUX) is None
    assert choose_gpu("auto", OTHER_CDI) is None
    assert choose_gpu("off", LEGACY) is None


def test_a_gpu_asked_for_in_vain() -> None:
    with pytest.raises(GpuUnavailable, match="no NVIDIA runtime"):
        choose_gpu("legacy", CDI)
    with pytest.raises(GpuUnavailable, match="no CDI device"):
        choose_gpu("cdi", LEGACY)


def test_one_model_and_one_request_at_a_time() -> None:
    env = environment(Settings(flash_attention=False, kv_cache_type="q8_0"), read_only=False)
    assert env["OLLAMA_MAX_LOADED_MODELS"] == env["OLLAMA_NUM_PARALLEL"] == "1"
    assert env["OLLAMA_FLASH_ATTENTION"] == "0"
    assert env["OLLAMA_KV_CACHE_TYPE"] == "q8_0"
    assert "OLLAMA_NOPRUNE" not in env
    assert environment(Settings(), read_only=True)["OLLAMA_NOPRUNE"] == "1"


def test_it_may_use_the_machine_but_a_reserve() -> None:
    assert limits(LINUX).memory_mb == (1 << 14) - 1024
    assert limits(replace(LINUX, memory_bytes=1 << 29)).memory_mb == 1024


HERE = cast(Engine, type("Here", (), {"host": "unix:///var/run/docker.sock"}))
ELSEWHERE = cast(Engine, type("There", (), {"host": "tcp://gpu-box:2376"}))


def test_the_model_folder_or_the_one_around_it(tmp_path: Path) -> None:
    (tmp_path / "models" / "manifests").mkdir(parents=True)
    assert models_folder(HERE, None) is None
    assert models_folder(HERE, tmp_path) == tmp_path / "models"
    assert models_folder(HERE, tmp_path / "models") == tmp_path / "models"
    with pytest.raises(UsageError, match="manifests"):
        models_folder(HERE, tmp_path / "none")
    assert models_folder(ELSEWHERE, Path("/srv/models")) == Path("/srv/models")


@pytest.mark.parametrize(
    ("uid", "mode", "user"),
    [(1000, 0o40700, "1000:1000"), (0, 0o40755, "10001:10001")],
)
def test_it_runs_as_one_who_can_read_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uid: int, mode: int, user: str
) -> None:
    status = os.stat_result((mode, 0, 0, 1, uid, uid, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "stat", lambda self: status)
    assert reader_of(HERE, tmp_path) == user
    assert reader_of(ELSEWHERE, tmp_path) == reader_of(HERE, None) == "10001:10001"


def test_a_folder_that_only_root_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status = os.stat_result((0o40700, 0, 0, 1, 0, 0, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "stat", lambda self: status)
    with pytest.raises(UsageError, match="chmod"):
        reader_of(HERE, tmp_path)
