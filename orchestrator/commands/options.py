"""What commands have in common: options given together, settings, ways to print."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from orchestrator.config import Settings


class Range(click.FloatRange):
    """A range that NaN, which is neither below nor above anything, does not pass."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def _with(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Options that several commands have, in the order that `--help` lists them."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


with_scale = click.option(
    "--scale",
    type=Range(min=0, min_open=True, max=1),
    default=1.0,
    show_default=True,
    help="Share of the data; 1 is the task as calibrated.",
)

with_ollama = _with(
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

with_budget = _with(
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


with_scoring = _with(
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

with_remote = _with(
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


def find_settings(**options: object) -> Settings:
    from orchestrator.config import load_settings

    return load_settings(**options)


def print_json(value: object) -> None:
    # ASCII: texts of models stand in it, and must neither steer a terminal nor fail to encode.
    click.echo(json.dumps(value, indent=1))


def say(line: str) -> None:
    click.echo(line, err=True)
