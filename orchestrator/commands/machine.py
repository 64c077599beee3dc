"""This machine: its checks, what is cleared away, images."""

from __future__ import annotations

import sys
from typing import Any

import click

from orchestrator.commands.options import find_settings, print_json, say, with_ollama


@click.command()
@with_ollama
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def doctor(as_json: bool, **options: Any) -> None:
    """Check engine, space, GPU, Ollama, memory and network settings of this machine.

    Exit code 2 when something that a trial needs does not work.
    """
    from orchestrator.report.terminal import console
    from orchestrator.trial.doctor import failed, render_checks, run_doctor

    checks = run_doctor(find_settings(**options))
    if as_json:
        print_json([check.model_dump(mode="json") for check in checks])
    else:
        render_checks(checks, console())
    sys.exit(2 if failed(checks) else 0)


@click.command()
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option("--keep-caches", is_flag=True, help="Keep environments, data and wheels for reuse.")
@click.option("--models", is_flag=True, help="Also remove the models that orch's Ollama pulled.")
@click.option(
    "--foreign",
    is_flag=True,
    help="Also remove what belongs to trials of other home folders; they may still run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def clean(dry_run: bool, keep_caches: bool, models: bool, foreign: bool, as_json: bool) -> None:
    """Remove containers, networks and volumes that no running trial owns, and caches.

    Records and generated data on this host are never touched.
    """
    from orchestrator.trial.clean import Fate, clean_engine

    also = [fate for fate, asked in ((Fate.MODELS, models), (Fate.FOREIGN, foreign)) if asked]
    result = clean_engine(find_settings(), dry_run=dry_run, also=also, keep_caches=keep_caches)
    if as_json:
        print_json(result.model_dump(mode="json"))
        return
    for line in result.lines():
        click.echo(line)


@click.group()
def images() -> None:
    """Container images."""


@images.command()
def build() -> None:
    """Build every image that is missing or whose inputs changed."""
    from orchestrator.sandbox.engine import Engine
    from orchestrator.trial.tools import all_images

    for image in all_images(Engine.connect(), say):
        click.echo(f"{image.name:10} {image.id}")
