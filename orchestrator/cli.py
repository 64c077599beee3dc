"""The command line: parse, call one function, print. Heavy imports happen where they are used."""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator import __version__
from orchestrator.errors import Interrupted, OrchError, UsageError
from orchestrator.stops import heard

if TYPE_CHECKING:
    from orchestrator.config import Settings


class _Range(click.FloatRange):
    """A range that NaN, which is neither below nor above anything, does not pass."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


_with_scale = click.option(
    "--scale",
    type=_Range(min=0, min_open=True, max=1),
    default=1.0,
    show_default=True,
    help="Share of the data; 1 is the task as calibrated.",
)


class _Group(click.Group):
    """Prints one sentence for what we raise, and exits with its code."""

    _heard: Sequence[signal.Signals] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As a program: SIGTERM and SIGHUP stop it as Ctrl-C does, at any moment.

        A signal that was ignored at the start (`nohup`) stays so.
        """
        self._heard = heard()
        for number in self._heard:
            signal.signal(number, signal.default_int_handler)
        try:
            return self.main(*args, **kwargs)
        finally:
            self._end()

    def _end(self) -> None:
        """All is done: one signal more must not change how it ended."""
        for number in self._heard:
            signal.signal(number, signal.SIG_IGN)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **(kwargs | {"standalone_mode": False}))
        except click.exceptions.Abort:
            self._end()
            click.echo("orch: interrupted", err=True)
            sys.exit(Interrupted.exit_code)
        except click.ClickException as exc:
            exc.show()
            sys.exit(2)
        except OrchError as exc:
            self._end()
            click.echo(f"orch: {exc}", err=True)
            sys.exit(exc.exit_code)
        except BrokenPipeError:
            sys.stderr.close()
            sys.exit(0)
        except OSError as exc:
            where = f"{exc.filename}: " if exc.filename else ""
            click.echo(f"orch: {where}{exc.strerror or exc}", err=True)
            sys.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="orch")
def main() -> None:
    """Finds out what local language models can build when nobody helps them.

    Start with `orch doctor`, then
    `orch trial spam --models scripted/careful,scripted/careless --runs 1`.
    """


def _settings(**options: object) -> Settings:
    from orchestrator.config import load_settings

    return load_settings(**options)


def _print_json(value: object) -> None:
    # ASCII: texts of models stand in it, and must neither steer a terminal nor fail to encode.
    click.echo(json.dumps(value, indent=1))


def _with(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Options that several commands have, in the order that `--help` lists them."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_with_ollama = _with(
    click.option(
        "--ollama-url",
        metavar="URL",
        help="An Ollama that runs already, on this host's loopback too. "
        "Without it orch starts the pinned Ollama image.",
    ),
    click.option(
        "--ollama-models",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Existing model folder of this host, used read-only by the Ollama that orch starts.",
    ),
    click.option(
        "--gpu",
        type=click.Choice(["auto", "legacy", "cdi", "off"]),
        help="How the Ollama that orch starts gets the GPU. Default: auto.",
    ),
)


_with_budget = _with(
    click.option("--max-tokens-in", type=click.IntRange(1), help="Tokens a run may read."),
    click.option("--max-tokens-out", type=click.IntRange(1), help="Tokens a run may write."),
    click.option("--max-calls", type=click.IntRange(1), help="Calls to its model a run may make."),
    click.option(
        "--max-agent-time",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Wall time of a run's agent. Scoring is not counted.",
    ),
    click.option(
        "--max-cost",
        type=click.FloatRange(min=0, min_open=True),
        metavar="USD",
        help="What a run may cost, of models whose prices are known. "
        "Defaults of these limits: the task's, else none.",
    ),
)


_with_scoring = _with(
    click.option(
        "--repeat",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Times that a submission is trained and scored from scratch; the spread is reported.",
    ),
    click.option(
        "--runtime",
        metavar="NAME",
        help="Runtime of the engine that submissions run under, e.g. `runsc` (gVisor). "
        "Default: the engine's own.",
    ),
)

_with_remote = _with(
    click.option(
        "--openai-url",
        metavar="URL",
        help="Base of the API behind `openai/NAME`, e.g. of vLLM or llama.cpp's server, on this "
        "host's loopback too. Default: OpenAI's own. Key: OPENAI_API_KEY.",
    ),
    click.option(
        "--anthropic-url",
        metavar="URL",
        help="Base of the API behind `anthropic/NAME`. Key: ANTHROPIC_API_KEY.",
    ),
)


@main.command()
@click.argument("task")
@click.option(
    "--models",
    required=True,
    metavar="A,B,…",
    help="Model references, comma-separated: `gpt-oss:20b` (Ollama), `openai/NAME`, "
    "`anthropic/NAME`, `scripted/NAME`, `replay/TRIAL/RUN`.",
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
@click.option("--temperature", type=_Range(0, 2), help="Default: the model's own.")
@click.option(
    "--think",
    type=click.Choice(["off", "on", "low", "medium", "high", "max"]),
    help="How much the models think before they answer. Default: the model's own.",
)
@_with_budget
@_with_scale
@_with_ollama
@_with_remote
@_with_scoring
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on stdout.")
def trial(task: str, models: str, as_json: bool, **options: Any) -> None:
    """Hand TASK to each model several times, unattended, and grade what they build.

    TASK is a name that `orch tasks` lists, or a folder with a task.toml. Progress goes to
    stderr, the report to stdout. Exit code 1: the trial finished with failures of the harness.
    """
    from orchestrator.records.schema import Budget
    from orchestrator.report.text import print_summary
    from orchestrator.trial.engine import TrialOptions, run_trial

    settings = _settings(
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
        _print_json(summary.model_dump(mode="json"))
    else:
        print_summary(summary)
    sys.exit(1 if summary.harness_failures else 0)


@main.command()
@click.argument("task")
@click.option("--seed", type=click.IntRange(0), help="Default: the task's.")
@_with_scale
@click.option("--json", "as_json", is_flag=True, help="Print folder and hashes as JSON.")
def data(task: str, seed: int | None, scale: float, as_json: bool) -> None:
    """Generate the data of TASK, or verify what is there."""
    from orchestrator.trial.data import ensure_data
    from orchestrator.trial.tasks import find_task

    settings = _settings()
    found = ensure_data(settings.holdout_dir, find_task(settings, task), scale, seed, _say)
    if as_json:
        _print_json({"folder": str(found.folder), **found.record.model_dump(mode="json")})
        return
    click.echo(f"{found.folder}")
    for name, sha in found.record.files.items():
        click.echo(f"  {sha}  {name}")


@main.command()
@click.argument("task")
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as JSON.")
@click.option("--reference", "names", multiple=True, help="Only this reference (repeatable).")
def calibrate(task: str, as_json: bool, names: tuple[str, ...]) -> None:
    """Score TASK's reference submissions and check them against the bounds in its task.toml.

    Exit code 1 when one leaves them.
    """
    from orchestrator.trial.calibrate import calibrate_task

    results = calibrate_task(_settings(), task, names, _say)
    if as_json:
        _print_json([result.model_dump(mode="json") for result in results])
    else:
        for result in results:
            click.echo(result.line())
    sys.exit(0 if all(result.kept for result in results) else 1)


@main.command()
@click.argument("task")
@click.argument("folder", type=click.Path(path_type=Path))
@_with_scale
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Run seed.")
@_with_scoring
@click.option("--json", "as_json", is_flag=True, help="Print the whole score record as JSON.")
def score(task: str, folder: Path, runtime: str | None, as_json: bool, **options: Any) -> None:
    """Score the submission in FOLDER on TASK's holdout.

    Trains and predicts in containers without network, grades outside. A failure of the
    submission is a result: its class and evidence are printed and the exit code is 0.
    """
    from orchestrator.report.text import print_score
    from orchestrator.trial.calibrate import ScoreOptions, score_submission

    settings = _settings(runtime=runtime)
    record = score_submission(settings, task, folder, ScoreOptions(**options), _say)
    if as_json:
        _print_json(record.model_dump(mode="json"))
    else:
        print_score(record)


@main.command()
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

    store = open_trial(_settings().runs_dir, trial_id)
    alive = store.trial_id in living(store.folder.parent)
    summary = summarise_store(store, alive=alive)
    if as_json:
        _print_json(summary.model_dump(mode="json"))
    else:
        print_summary(summary)


@main.command()
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

    compared = replay_run(_settings(), run, allow_drift=allow_drift, say=_say)
    if as_json:
        _print_json(compared.json_ready())
    else:
        for line in compared.lines():
            click.echo(line)
    sys.exit(0 if compared.same else 1)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def tasks(as_json: bool) -> None:
    """List the tasks."""
    from orchestrator.trial.tasks import list_tasks

    found = list_tasks(_settings())
    if as_json:
        _print_json(
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


@main.command()
@_with_ollama
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def doctor(as_json: bool, **options: Any) -> None:
    """Check engine, space, GPU, Ollama, memory and network settings of this machine.

    Exit code 2 when something that a trial needs does not work.
    """
    from orchestrator.report.text import console
    from orchestrator.trial.doctor import failed, render_checks, run_doctor

    checks = run_doctor(_settings(**options))
    if as_json:
        _print_json([check.model_dump(mode="json") for check in checks])
    else:
        render_checks(checks, console())
    sys.exit(2 if failed(checks) else 0)


@main.command()
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
    result = clean_engine(_settings(), dry_run=dry_run, also=also, keep_caches=keep_caches)
    if as_json:
        _print_json(result.model_dump(mode="json"))
        return
    for line in result.lines():
        click.echo(line)


@main.group()
def images() -> None:
    """Container images."""


@images.command()
def build() -> None:
    """Build every image that is missing or whose inputs changed."""
    from orchestrator.sandbox.engine import Engine
    from orchestrator.trial.tools import all_images

    for image in all_images(Engine.connect(), _say):
        click.echo(f"{image.name:10} {image.id}")


def _say(line: str) -> None:
    click.echo(line, err=True)


if __name__ == "__main__":
    main()
