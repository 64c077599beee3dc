"""Prove of a network that nothing outside of it answers, instead of trusting its options."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import EngineRefused
from orchestrator.sandbox.container import ContainerSpec, run_step
from orchestrator.sandbox.engine import Engine, translated
from orchestrator.sandbox.labels import Owner
from orchestrator.sandbox.limits import Limits
from orchestrator.sandbox.network import Network

SCRIPT = ("python3", "-I", "-S", "/opt/orch/inside/reach.py")
OUTSIDE = (("192.0.2.1", 443), ("2001:db8::1", 443))
"""Addresses set aside for documentation: nobody's, so that no one is bothered by the attempt."""
NAMES = ("example.com",)
WAIT_S = 2.0
LIMITS = Limits(memory_mb=128, cpus=1, pids=32, wall_s=30, tmp_mb=4)


@dataclass(frozen=True)
class Isolation:
    """What a container on a network tried, and what answered it (nothing, if it is closed)."""

    tried: tuple[str, ...]
    answered: tuple[str, ...]

    @property
    def closed(self) -> bool:
        return not self.answered


def prove_isolation(
    engine: Engine, tools_image: str, network: Network | None, owner: Owner
) -> Isolation:
    """Try to leave `network` (None: a container without any) from a container on it.

    Tried: a listener opened here on all addresses, by every address of the host and every bridge
    of the engine that is known; addresses outside; the resolution of a public name; whether there
    is a default route. With an engine on another machine the listener is not there, and what it
    would prove is left to the route. Raises EngineError.
    """
    with _listener() as port:
        addresses = [(host, port) for host in sorted(_bridges(engine) | _own_addresses())]
        addresses += OUTSIDE
        plan = {"addresses": addresses, "names": NAMES, "wait_s": WAIT_S}
        spec = ContainerSpec(
            tools_image,
            owner.as_role("probe"),
            LIMITS,
            network=network.id if network is not None else None,
        )
        ended = run_step(engine, spec, (*SCRIPT, json.dumps(plan)), counted=False)
    if not ended.succeeded:
        raise EngineRefused(
            f"The proof of isolation could not be run ({ended.ending}): "
            f"{ended.stderr.text.strip()[-500:]}."
        )
    tried = [f"{host} port {port}" for host, port in addresses]
    tried += [*(f"name {name}" for name in NAMES), "default route"]
    answered = [f"{what}: {how}" for what, how in json.loads(ended.stdout.text)]
    return Isolation(tuple(tried), tuple(answered))


@contextmanager
def _listener() -> Iterator[int]:
    """The port of a listener on all addresses of this machine. The kernel accepts for us."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with socket.create_server(("", 0), family=family, dualstack_ipv6=both) as listening:
        yield int(listening.getsockname()[1])


def _bridges(engine: Engine) -> set[str]:
    """Gateway addresses of the engine's networks: where its host would be found from inside."""
    with translated("list networks"):
        networks: list[dict[str, Any]] = engine.api.networks()
    return {
        place["Gateway"]
        for network in networks
        for place in network["IPAM"]["Config"] or ()
        if place.get("Gateway")
    }


def _own_addresses() -> set[str]:
    """IPv4 addresses of this machine, other than loopback."""
    found: set[str] = set()
    try:
        for entry in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET):
            found.add(str(entry[4][0]))
    except OSError:
        pass
    # Connecting a datagram socket sends nothing; it only picks the address to send from.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as picking:
        try:
            picking.connect(OUTSIDE[0])
        except OSError:
            pass
        else:
            found.add(str(picking.getsockname()[0]))
    return {address for address in found if not address.startswith("127.")}
