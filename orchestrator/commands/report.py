"""What records tell."""

from __future__ import annotations

import click

from orchestrator.commands.options import find_settings, print_json


@click.command()
@click.argument("trial_id", metavar="TRIAL")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def report(trial_id: str, as_json: bool) -> None:
    """Print the report of TRIAL, also while it runs.

    TRIAL is its name, the beginning of it, its folder, or `latest`.
    """
    from orchestrator.records.store import open_trial
    from orchestrator.report.summary import summarise_store
    from orchestrator.report.text import print_summary
    from orchestrator.trial.lease import living

    store = open_trial(find_settings().runs_dir, trial_id)
    alive = store.trial_id in living(store.folder.parent)
    summary = summarise_store(store, alive=alive)
    if as_json:
        print_json(summary.model_dump(mode="json"))
    else:
        print_summary(summary)
