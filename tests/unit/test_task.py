from pathlib import Path

import pytest

from orchestrator.errors import TaskInvalid, TaskNotFound
from orchestrator.records.schema import Budget
from orchestrator.task import AgentStageSpec, ExecuteStageSpec, load_task

GOOD = """
schema = 1
name = "tiny"
title = "Tiny"
summary = "A small one."
[data]
generator = "generator.py"
seed = 1
[[stage]]
kind = "agent"
name = "implement"
prompt = "prompts/implement.md"
expects = ["predict.py"]
[[stage]]
kind = "execute"
name = "check"
steps = [{ name = "predict", command = ["python", "predict.py"] }]
repairs = "implement"
repair_prompt = "prompts/implement.md"
[scorer]
kind = "predictions"
train = { name = "train", command = ["python", "train.py"] }
predict = { name = "predict", command = ["python", "predict.py"] }
id_column = "id"
label_column = "label"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    (folder / "repo").mkdir(parents=True)
    (folder / "repo" / "SPEC.md").write_text("the spec")
    (folder / "prompts").mkdir()
    (folder / "prompts" / "implement.md").write_text("do it")
    (folder / "generator.py").write_text("")
    (folder / "task.toml").write_text(GOOD)
    return folder


def edit(folder: Path, old: str, new: str) -> Path:
    file = folder / "task.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return folder


def test_a_good_task_loads(folder: Path) -> None:
    task = load_task(folder)
    assert isinstance(task.stage[0], AgentStageSpec)
    assert isinstance(task.stage[1], ExecuteStageSpec)
    assert task.folder == folder


def test_a_task_may_limit_what_a_run_uses(folder: Path) -> None:
    assert load_task(folder).budget == Budget()
    edit(folder, "[scorer]", "[budget]\nmax_calls = 40\nmax_agent_time = 3600\n[scorer]")
    assert load_task(folder).budget == Budget(max_calls=40, max_agent_time=3600)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[scorer]", "[budget]\nmax_call = 4\n[scorer]", "did you mean 'max_calls'?"),
        ("[scorer]", "[budget]\nmax_calls = 0\n[scorer]", "budget.max_calls: "),
        ('title = "Tiny"', 'titel = "Tiny"', "titel: unknown key 'titel'; did you mean 'title'?"),
        ('title = "Tiny"', "", "title: missing; add it"),
        ("seed = 1", 'seed = "x"', "data.seed: Input should be a valid integer"),
        ('expects = ["predict.py"]', "expect = []", "did you mean 'expects'?"),
        ("[scorer]", "[limits.execute]\nmemory_mb = 1\n[scorer]", "limits.execute.memory_mb: "),
        ("[scorer]", '[scorer]\nleaked_columns = ["a", "a"]', "is named once"),
        ("[scorer]", '[scorer]\nleaked_columns = ["id"]', "names the id column 'id'"),
        ("[scorer]", '[scorer]\nmissing_rows = "skip"', "missing_rows"),
        ("[scorer]", '[scorer]\nscore_column = "label"', "which is another column"),
        ("[scorer]", '[scorer]\nscore_column = ""', "score_column"),
        ("[scorer]", '[scorer]\nmissing_row = "wrong"', "did you mean 'missing_rows'?"),
        ("[scorer]", '[scorer]\nnegative_words = ["1"]', "'1' is a spelling of both labels"),
        ('label_column = "label"', 'label_column = "id"', "label_column is 'id', which is"),
        ('prompt = "prompts/implement.md"', "prompt = 1", "stage.0.prompt: "),
        ('kind = "agent"', 'kind = "robot"', "stage.0: Input tag 'robot'"),
        ('repairs = "implement"', 'repairs = "x"', "repairs names no agent stage: 'x'"),
        ('repairs = "implement"', "", "repairs and repair_prompt go together"),
        ('name = "check"', 'name = "implement"', "two stages are called 'implement'"),
        ('generator = "generator.py"', 'generator = "../g.py"', "relative path inside"),
        ('generator = "generator.py"', 'generator = "g.py"', "names 'g.py', which is not in"),
        ('name = "tiny"', 'name = "other"', "its folder is 'tiny'"),
        ("schema = 1", "schema = 2", "schema: Input should be 1"),
        ("schema = 1", "schema = ", "not valid TOML"),
    ],
)
def test_a_fault_is_one_sentence_with_file_field_and_mend(
    folder: Path, old: str, new: str, says: str
) -> None:
    edit(folder, old, new)
    with pytest.raises(TaskInvalid) as caught:
        load_task(folder)
    message = str(caught.value)
    assert message.startswith(str(folder / "task.toml"))
    assert says in message
    assert "\n" not in message


def test_a_folder_without_task_toml_is_no_task(tmp_path: Path) -> None:
    with pytest.raises(TaskNotFound, match="no such file"):
        load_task(tmp_path)


def test_the_fingerprint_follows_content_and_name(folder: Path) -> None:
    before = load_task(folder).fingerprint()
    (folder / "prompts" / "implement.md").write_text("do it now")
    assert load_task(folder).fingerprint() != before
