"""The command line: gathers the commands; each parses, calls one function, prints.

Heavy imports happen where they are used.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import Any

import click

from orchestrator import __version__
from orchestrator.commands import agents, machine, report, task, trial
from orchestrator.errors import Interrupted, OrchError
from orchestrator.stops import heard


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


for _command in (
    trial.trial,
    trial.replay,
    task.tasks,
    task.data,
    task.calibrate,
    task.score,
    report.report,
    report.explain,
    machine.doctor,
    machine.clean,
    machine.images,
    agents.agents,
):
    main.add_command(_command)


if __name__ == "__main__":
    main()
