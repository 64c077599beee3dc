"""Trials and what repeats a part of one."""

from __future__ import annotations

import sys
from typing import Any

import click

from orchestrator.commands.options import (
    Range,
    find_settings,
    print_json,
    say,
    with_budget,
    with_ollama,
    with_remote,
    with_scale,
    with_scoring,
)
from orchestrator.errors import UsageError


@click.command()
@click.argument("task")
@click.option(
    "--models",
    required=True,
    metavar="A,B,…",
    help="Model references, comma-separated: `gpt-oss:20b` (Ollama), `openai/NAME`, "
    "`anthropic/NAME`, `scripted/NAME`, `replay/TRIAL/RUN`.",
)
@click.option(
    "--agent",
    default="builtin",
    show_default=True,
    metavar="NAME",
    help="What the models work through: `builtin` or `aider`.",
)
@click.option("--runs", type=click.IntRange(1), help="Runs of each model. Default: the task's.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Trial seed.")
@click.option(
    "--repair-turns",
    type=click.IntRange(0),
    help="Times a failing execute stage is handed back. Default: the task's.",
)
@click.option(
    "--num-ctx", type=click.IntRange(1024), help="Context in tokens. Default: the task's."
)
@click.option("--temperature", type=Range(0, 2), help="Default: the model's own.")
@click.option(
    "--think",
    type=click.Choice(["off", "on", "low", "medium", "high", "max"]),
    help="How much the models think before they answer. Default: the model's own.",
)
@with_budget
@with_scale
@with_ollama
@with_remote
@with_scoring
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout.")
def trial(task: str, models: str, as_json: bool, **options: Any) -> None:
    """Hand TASK to each model several times, unattended, and grade what they build.

    TASK is a name that `orch tasks` lists, or a folder with a task.toml. Progress goes to
    stderr, the report to stdout. Exit code 1: the trial finished with failures of the harness.
    """
    from orchestrator.records.schema import Budget
    from orchestrator.report.text import print_summary
    from orchestrator.trial.engine import TrialOptions, run_trial

    settings = find_settings(
        ollama_url=options.pop("ollama_url"),
        ollama_models=options.pop("ollama_models"),
        gpu=options.pop("gpu"),
        openai_url=options.pop("openai_url"),
        anthropic_url=options.pop("anthropic_url"),
        runtime=options.pop("runtime"),
    )
    budget = Budget(**{name: options.pop(name) for name in Budget.model_fields})
    references = [part.strip() for part in models.split(",") if part.strip()]
    if not references:
        raise UsageError("--models names no model; give e.g. --models gpt-oss:20b")
    chosen = TrialOptions(task, references, budget=budget, runtime=settings.runtime, **options)
    summary = run_trial(settings, chosen)
    if as_json:
        print_json(summary.model_dump(mode="json"))
    else:
        print_summary(summary)
    sys.exit(summary.exit_code)


@click.command()
@click.argument("run")
@click.option(
    "--allow-drift",
    is_flag=True,
    help="Also where task, data or images are not those of the recording; the record says which.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON on stdout.")
def replay(run: str, allow_drift: bool, as_json: bool) -> None:
    """Do RUN again with its recorded replies instead of a model, and compare.

    RUN is written TRIAL/RUN-ID, e.g. latest/gpt-oss-20b-01. TRIAL may be shortened to its
    beginning, RUN-ID to any part that fits one run only. RUN-ID alone is of the latest trial that
    has such a run; a run's folder works too.

    The replay is a trial of its own, with the recorded seed and settings; the gateway reaches no
    model. Exit code 0: model calls, snapshots, environment locks, predictions, score and failure
    are the same; 1: they are not.
    """
    from orchestrator.trial.replay import replay_run

    compared = replay_run(find_settings(), run, allow_drift=allow_drift, say=say)
    if as_json:
        print_json(compared.json_ready())
    else:
        for line in compared.lines():
            click.echo(line)
    sys.exit(0 if compared.same else 1)
