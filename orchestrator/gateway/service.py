"""The gateway of a trial: starts its container, opens and closes the agents' way to a model."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import httpx

from orchestrator.errors import ContainerLost, EngineError, EngineRefused, NotEnoughSpace, OrchError
from orchestrator.gateway.transport import ExecTransport
from orchestrator.records.calls import CallRecord, loads_whole
from orchestrator.sandbox import network, volume
from orchestrator.sandbox.container import Container, ContainerSpec
from orchestrator.sandbox.engine import Engine
from orchestrator.sandbox.image import Image
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.network import Network

ALIAS = "gateway"
PORT = 11434
RECORDS = "/records"
SCRIPTS = "scripts.json"
COMMAND = ("python", "-m", "server")
CTL = ("python", "-m", "server.ctl")
LIMITS = Limits(memory_mb=512, cpus=1, pids=64, tmp_mb=16, fsize_mb=4096)
START_S = 60.0
ORDER_S = 60.0
RECORDING_S = 600.0
"""For reading a recording through, which may be gigabytes."""
MAX_RECORD_BYTES = LIMITS.fsize_mb << 20
THINKING: Mapping[str, bool] = {"on": True, "off": False}
"""Words for what is no level but a yes or no."""
Scripts = Mapping[str, Mapping[str, Mapping[int, str | list[str]]]]
"""Model → stage → turn → reply to each call, or a list of replies, one to a call."""


class Model(Protocol):
    """A model reference, as far as the gateway needs to know it."""

    @property
    def kind(self) -> str:
        """`ollama`, `openai`, `anthropic`, `scripted` or `replay`."""

    @property
    def name(self) -> str:
        """The name at its upstream."""


@dataclass(frozen=True)
class CallSettings:
    """What a trial pins on every call. Tokens; times in seconds.

    `temperature` and `think` None: the model's own; `think` is `on`, `off` or a level. `silence_s`
    is the longest wait for the first token (loading the model included) and between any two.
    """

    num_ctx: int
    max_reply_tokens: int
    temperature: float | None = None
    think: str | None = None
    keep_alive: str = "1h"
    silence_s: float = 600.0
    total_s: float = 3600.0


@dataclass(frozen=True)
class Uplink:
    """The gateway's way out to a model server.

    `network` names an existing one (Compose's); None: a bridge of our own, gone with the trial.
    """

    network: str | None = None


@dataclass(frozen=True)
class Access:
    """One stage's and turn's way to its model: good until closed, from the run's network only."""

    url: str
    token: str
    model: str
    stage: str
    file: str = ""
    """Where its calls are recorded, in the gateway's volume."""


class GatewayService:
    """A context manager: one container for all runs of a trial, and another where that has ended.

    Without an `uplink` it reaches nothing at all; scripted models need no more.
    """

    def __init__(
        self,
        engine: Engine,
        image: Image,
        owner: Owner,
        calls: CallSettings,
        uplink: Uplink | None = None,
    ) -> None:
        self._engine = engine
        self._image = image
        self._owner = owner.as_role("gateway")
        self._calls = calls
        self._wanted = uplink
        self._stack = ExitStack()
        self._process = ExitStack()
        self._container: Container | None = None
        self._spec: ContainerSpec | None = None
        self._told: dict[tuple[object, ...], dict[str, Any]] = {}
        """What it was told for the whole trial, to be told to another one."""
        self.uplink: Network | None = None
        """The network on which it reaches model servers; None without an uplink."""

    def __enter__(self) -> GatewayService:
        """Raises the engine's errors; EngineRefused where the gateway does not come up."""
        with ExitStack() as stack:
            home = self._home(stack)
            records = volume.create(self._engine, self._owner.as_role("records"))
            stack.callback(volume.remove, self._engine, records)
            self._spec = ContainerSpec(
                image=self._image.id,
                owner=self._owner,
                limits=LIMITS,
                mounts=(records.at(RECORDS, read_only=False),),
                network=home.id,
                command=COMMAND,
            )
            stack.callback(lambda: self._process.close())
            self._start()
            self._stack = stack.pop_all()
        return self

    def _start(self) -> None:
        assert self._spec is not None
        with ExitStack() as process:
            container = process.enter_context(Container(self._engine, self._spec))
            self._wait_until_up(container)
            self._container, self._process = container, process.pop_all()

    def _running(self) -> bool:
        try:
            return self.container.running
        except ContainerLost:
            return False

    def revive(self) -> bool:
        """Start another gateway where the first has ended; whether that was so.

        It is told what the first was told, keeps its records, and is on no run's network yet; what
        was open is closed. Raises as entering does.
        """
        if self._running():
            return False
        self._process.close()
        self._start()
        for told in self._told.values():
            self._order(**told)
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, value, trace)

    def _home(self, stack: ExitStack) -> Network:
        """The network it is created on: an engine attaches further ones only to one that has."""
        owner = self._owner.as_role("uplink")
        if self._wanted is None:
            return stack.enter_context(network.internal(self._engine, owner))
        if self._wanted.network is not None:
            self.uplink = network.existing(self._engine, self._wanted.network)
        else:
            self.uplink = stack.enter_context(network.bridge(self._engine, owner))
        return self.uplink

    def _wait_until_up(self, container: Container) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                status = b'{"do": "status"}'
                ended = container.exec(CTL, timeout_s=ORDER_S, stdin=status, counted=False)
            except ContainerLost as lost:
                raise EngineRefused(
                    f"The gateway ended as soon as it was started: {lost}"
                ) from lost
            if ended.exit_code == 0:
                return
            if time.monotonic() > deadline:
                why = ended.stderr.text.strip()[-500:]
                raise EngineRefused(f"The gateway did not come up within {START_S:g} s: {why}.")
            time.sleep(0.05)

    @property
    def container(self) -> Container:
        """Raises EngineRefused outside the `with` block."""
        if self._container is None:
            raise EngineRefused("The gateway was used outside its `with` block.")
        return self._container

    def attach(self, net: Network) -> None:
        """Be found on `net` as `gateway`; ends when the network is removed."""
        network.attach(self._engine, net, self.container, ALIAS)

    def use_ollama(self, url: str) -> None:
        """Send calls for Ollama models to `url`, as it is reached from the uplink."""
        self._tell("ollama", url=url)

    def use_remote(self, kind: str, url: str, key: str) -> None:
        """Send calls for models of `kind` (`openai`, `anthropic`) to the API at `url`.

        The key goes over stdin and stays in the gateway's memory.
        """
        self._tell("remote", kind, kind=kind, url=url, key=key)

    def load_scripts(self, scripts: Scripts) -> None:
        """Replies of scripted models, in the agent's dialect."""
        data = json.dumps(scripts).encode()
        self.container.put(RECORDS, {SCRIPTS: data})
        self._tell("scripts", path=f"{RECORDS}/{SCRIPTS}")

    def load_recording(self, run: str, calls: Iterable[CallRecord]) -> None:
        """What `run` will be answered with; its accesses are opened for a model of kind replay.

        By way of a file on this host, as they may be more than fits into memory.
        """
        with tempfile.NamedTemporaryFile(prefix="orch-replay-") as spool:
            for call in calls:
                spool.write(json.dumps(call.model_dump()).encode("ascii") + b"\n")
            spool.flush()
            name = f"replay-{run}.jsonl"
            self.container.put(RECORDS, {name: Path(spool.name)})
        self._tell("replay", run, timeout_s=RECORDING_S, run=run, path=f"{RECORDS}/{name}")

    def http(self, base_url: str, headers: Mapping[str, str] | None = None) -> httpx.Client:
        """A client that asks from where the gateway stands; to be closed by the caller."""
        transport = ExecTransport(self.container)
        return httpx.Client(transport=transport, base_url=base_url, headers=headers)

    def open(
        self,
        *,
        run: str,
        stage: str,
        turn: int,
        model: Model,
        seed: int,
        network: Network,
        wallet: Mapping[str, Mapping[str, float | None]] | None = None,
    ) -> Access:
        """Let one stage and turn of a run call its model, from `network` only.

        `wallet` has `limits` of the run and what it has `used` before this stage, by unit, and the
        `price` of the model's tokens where one is known.
        """
        calls = self._calls
        answer = self._order(
            "open",
            run=run,
            stage=stage,
            turn=turn,
            model=model.name,
            upstream=str(model.kind),
            sources=[network.subnet],
            wallet=wallet or {},
            pins={
                "num_ctx": calls.num_ctx,
                "seed": seed,
                "max_reply_tokens": calls.max_reply_tokens,
                "temperature": calls.temperature,
                "think": THINKING.get(calls.think or "", calls.think),
                "keep_alive": calls.keep_alive,
                "silence_s": calls.silence_s,
                "total_s": calls.total_s,
            },
        )
        url = f"http://{ALIAS}:{PORT}"
        return Access(url, answer["token"], model.name, stage, answer["file"])

    def close(self, access: Access) -> Iterator[CallRecord]:
        """End the access, and every call still in progress on it; all its calls, in order.

        The access has ended when this returns; the calls are read as they are asked for. After the
        last of them EngineRefused is raised where not all were recorded, NotEnoughSpace where that
        is for want of space, and ContainerLost where the gateway had ended before.
        """
        try:
            answer = self._order("close", token=access.token)
        except EngineError as exc:
            if self._running():
                raise
            return self._left(access, exc)
        return self._recorded(answer["file"], answer["lines"], access.stage, answer["lost"])

    def _recorded(self, file: str, lines: int, stage: str, lost: str) -> Iterator[CallRecord]:
        found = 0
        for line in self._lines(file) if lines else ():
            found += 1
            yield CallRecord.model_validate(loads_whole(line))
        if lost:
            raise NotEnoughSpace(
                f"The gateway could not keep all calls of {stage}: {lost}; is the engine's disk "
                "full?"
            )
        if found != lines:
            raise EngineRefused(f"The gateway recorded {found} of {lines} calls of {stage}.")

    def _left(self, access: Access, lost: EngineError) -> Iterator[CallRecord]:
        """What a gateway that does not answer any more had recorded by then; then its error."""
        with suppress(OrchError):
            for line in self._lines(access.file):
                if line.endswith(b"\n"):
                    yield CallRecord.model_validate(loads_whole(line))
        raise lost

    def _lines(self, file: str) -> Iterator[bytes]:
        """By way of a file on this host, as they may be more than fits into memory."""
        with tempfile.TemporaryFile() as spool:
            self.container.get_into(file, MAX_RECORD_BYTES, spool)
            spool.seek(0)
            yield from spool

    def status(self) -> dict[str, Any]:
        """`open`: tokens that are good now; `recorded`: calls; `refused`: reason → count."""
        return self._order("status")

    def _tell(self, do: str, *about: object, **more: Any) -> None:
        """An order that a gateway started later needs, too; the last one about the same counts."""
        self._order(do, **more)
        self._told[do, *about] = {"do": do, **more}

    def _order(self, do: str, timeout_s: float = ORDER_S, **more: object) -> dict[str, Any]:
        order = json.dumps({"do": do, **more}).encode()
        ended = self.container.exec(
            CTL, timeout_s=timeout_s, stdin=order, log_kb=256, counted=False
        )
        if not ended.succeeded:
            why = ended.stderr.text.strip()[-500:] or str(ended.ending)
            raise EngineRefused(f"The gateway did not take the order {do}: {why}.")
        answer: dict[str, Any] = json.loads(ended.raw_stdout)
        if "error" in answer:
            raise EngineRefused(f"The gateway refused the order {do}: {answer['error']}.")
        return answer
