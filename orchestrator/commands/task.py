"""Tasks: which there are, their data, their references, a submission scored."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from orchestrator.commands.options import find_settings, print_json, say, with_scale, with_scoring


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def tasks(as_json: bool) -> None:
    """List the tasks."""
    from orchestrator.trial.tasks import list_tasks

    found = list_tasks(find_settings())
    if as_json:
        print_json(
            [
                {
                    "name": task.name,
                    "title": task.title,
                    "summary": task.summary,
                    "folder": str(task.folder),
                    "scripted_models": task.scripted_models(),
                }
                for task in found
            ]
        )
        return
    for task in found:
        click.echo(f"{task.name:12} {task.title}")
        click.echo(f"{'':12} {task.summary}")
        if names := task.scripted_models():
            click.echo(f"{'':12} scripted models: {', '.join(names)}")


@click.command()
@click.argument("task")
@click.option("--seed", type=click.IntRange(0), help="Default: the task's.")
@with_scale
@click.option("--json", "as_json", is_flag=True, help="Print folder and hashes as JSON.")
def data(task: str, seed: int | None, scale: float, as_json: bool) -> None:
    """Generate the data of TASK, or verify what is there."""
    from orchestrator.trial.data import ensure_data
    from orchestrator.trial.tasks import find_task

    settings = find_settings()
    found = ensure_data(settings.holdout_dir, find_task(settings, task), scale, seed, say)
    if as_json:
        print_json({"folder": str(found.folder), **found.record.model_dump(mode="json")})
        return
    click.echo(f"{found.folder}")
    for name, sha in found.record.files.items():
        click.echo(f"  {sha}  {name}")


@click.command()
@click.argument("task")
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as JSON.")
@click.option("--reference", "names", multiple=True, help="Only this reference (repeatable).")
def calibrate(task: str, as_json: bool, names: tuple[str, ...]) -> None:
    """Score TASK's reference submissions and check them against the bounds in its task.toml.

    Exit code 1 when one leaves them.
    """
    from orchestrator.trial.calibrate import calibrate_task

    results = calibrate_task(find_settings(), task, names, say)
    if as_json:
        print_json([result.model_dump(mode="json") for result in results])
    else:
        for result in results:
            click.echo(result.line())
    sys.exit(0 if all(result.kept for result in results) else 1)


@click.command()
@click.argument("task")
@click.argument("folder", type=click.Path(path_type=Path))
@with_scale
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Run seed.")
@with_scoring
@click.option("--json", "as_json", is_flag=True, help="Print the whole score record as JSON.")
def score(task: str, folder: Path, runtime: str | None, as_json: bool, **options: Any) -> None:
    """Score the submission in FOLDER on TASK's holdout.

    Trains and predicts in containers without network, grades outside. A failure of the
    submission is a result: its class and evidence are printed and the exit code is 0.
    """
    from orchestrator.report.score import print_score
    from orchestrator.trial.calibrate import ScoreOptions, score_submission

    settings = find_settings(runtime=runtime)
    record = score_submission(settings, task, folder, ScoreOptions(**options), say)
    if as_json:
        print_json(record.model_dump(mode="json"))
    else:
        print_score(record)
