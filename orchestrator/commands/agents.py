"""The agents there are, and whether one does what every agent must."""

from __future__ import annotations

import sys

import click

from orchestrator.commands.options import find_settings, print_json, say


@click.group(invoke_without_command=True)
@click.pass_context
def agents(context: click.Context) -> None:
    """What models can work through; without a further word, a list."""
    if context.invoked_subcommand is None:
        from orchestrator.agents.registry import AGENTS

        for name, each in AGENTS.items():
            click.echo(f"{name:10} image {each.image}")


@agents.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def check(name: str, as_json: bool) -> None:
    """Try in real containers whether agent NAME does what every agent must.

    Files of a reply land, what does not is named, a model server that fails is survived, the
    deadline is kept, nothing stays behind. Exit code 1 when something of that does not hold.
    """
    from orchestrator.report.terminal import console
    from orchestrator.trial.conformance import check_agent
    from orchestrator.trial.doctor import failed, render_checks

    found = list(check_agent(find_settings(), name, say))
    if as_json:
        print_json([each.model_dump(mode="json") for each in found])
    else:
        render_checks(found, console())
    sys.exit(1 if failed(found) else 0)
