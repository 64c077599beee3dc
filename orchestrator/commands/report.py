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


@click.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def explain(run: str, as_json: bool) -> None:
    """Say why RUN came out as it did: what failed, whose fault it is, where, and what mends it.

    RUN is written TRIAL/RUN-ID, e.g. latest/gpt-oss-20b-01. TRIAL may be shortened to its
    beginning, RUN-ID to any part that fits one run only. RUN-ID alone is of the latest trial that
    has such a run; a run's folder works too. Works while the trial runs.
    """
    from orchestrator.records.store import find_run
    from orchestrator.report.explain import explain_run
    from orchestrator.report.explained import print_explanation
    from orchestrator.trial.lease import living

    store, run_id = find_run(find_settings().runs_dir, run)
    alive = store.trial_id in living(store.folder.parent)
    found = explain_run(store, run_id, alive=alive)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        print_explanation(found)
