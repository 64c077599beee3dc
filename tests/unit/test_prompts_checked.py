"""What would fail in the middle of a trial is refused before it."""

import shutil
from pathlib import Path

import pytest

from orchestrator.config import bundled
from orchestrator.errors import TaskInvalid
from orchestrator.task import load_task
from orchestrator.trial.prompts import check_prompts


@pytest.fixture
def spam(tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundled("tasks") / "spam", tmp_path / "spam"))


def test_the_task_itself_passes(spam: Path) -> None:
    check_prompts(load_task(spam))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{{ nosuch }}", "unknown variable 'nosuch'; there are excerpt, expected"),
        (b"one\n{% if %}", "line 2"),
        (b"\xff", "byte 0 is not UTF-8"),
    ],
)
def test_a_broken_template_is_named(spam: Path, content: bytes, says: str) -> None:
    prompt = next((spam / "prompts").glob("*explore*"))
    prompt.write_bytes(content)
    with pytest.raises(TaskInvalid, match=says) as refused:
        check_prompts(load_task(spam))
    assert str(prompt) in str(refused.value)


def test_a_missing_spec_is_named(spam: Path) -> None:
    (spam / "repo" / "SPEC.md").unlink()
    with pytest.raises(TaskInvalid, match=r"repo names 'repo/SPEC\.md'"):
        load_task(spam)


@pytest.mark.parametrize("name", ["../x", "", "a/b", "Explore"])
def test_a_stage_name_that_would_leave_the_records_is_refused(spam: Path, name: str) -> None:
    file = spam / "task.toml"
    file.write_text(file.read_text().replace('name = "explore"', f'name = "{name}"', 1))
    with pytest.raises(TaskInvalid, match="name"):
        load_task(spam)
