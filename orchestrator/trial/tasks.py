"""Finding tasks by name or folder."""

from pathlib import Path

from orchestrator.config import Settings
from orchestrator.errors import TaskNotFound, did_you_mean
from orchestrator.task import TASK_FILE, Task, load_task


def list_tasks(settings: Settings) -> list[Task]:
    """All tasks of the task folders, by name; of two with one name the first found counts.

    Raises TaskInvalid for a broken task.toml.
    """
    found: dict[str, Task] = {}
    for folder in settings.task_folders():
        for file in sorted(folder.glob(f"*/{TASK_FILE}")):
            found.setdefault(file.parent.name, load_task(file.parent))
    return [found[name] for name in sorted(found)]


def find_task(settings: Settings, name: str) -> Task:
    """The task of that name, or in that folder. Raises TaskNotFound, TaskInvalid."""
    if "/" in name or Path(name, TASK_FILE).is_file():
        return load_task(Path(name))
    for folder in settings.task_folders():
        if (folder / name / TASK_FILE).is_file():
            return load_task(folder / name)
    known = sorted(
        {
            file.parent.name
            for folder in settings.task_folders()
            for file in folder.glob("*/task.toml")
        }
    )
    hint = did_you_mean(name, known, f"there are: {', '.join(known)}")
    raise TaskNotFound(f"no task {name!r}; {hint}")
