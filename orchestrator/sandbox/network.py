"""Networks of containers that lead nowhere else: neither out nor to the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import EngineRefused
from orchestrator.sandbox.container import Container
from orchestrator.sandbox.engine import Engine, translated
from orchestrator.sandbox.labels import Owner, new_name

NO_GATEWAY = {"com.docker.network.bridge.inhibit_ipv4": "true"}
"""Keeps the bridge without an address: an internal network alone still reaches the host's own
services on the bridge's address."""


@dataclass(frozen=True)
class Network:
    """A network of the engine; `subnet` is where its containers' addresses lie."""

    id: str
    name: str
    subnet: str


@contextmanager
def internal(engine: Engine, owner: Owner) -> Iterator[Network]:
    """A network whose containers reach one another and nothing else; gone when left."""
    with bridge(engine, owner, closed=True) as network:
        yield network


@contextmanager
def bridge(engine: Engine, owner: Owner, *, closed: bool = False) -> Iterator[Network]:
    """A bridge of our own, with a way out unless `closed`; gone when left."""
    api: Any = engine.api
    name = new_name(owner.role)
    try:
        with translated("create a network"):
            created = api.create_network(
                name,
                driver="bridge",
                internal=closed,
                options=NO_GATEWAY if closed else {},
                labels=owner.labels(),
            )
            details = api.inspect_network(created["Id"])
        yield Network(created["Id"], name, details["IPAM"]["Config"][0]["Subnet"])
    finally:
        # By name: an interrupt can come between the engine's act and its answer.
        engine.remove_network(name)


def existing(engine: Engine, name: str) -> Network:
    """A network that somebody else made and keeps. Raises EngineRefused when there is none."""
    with translated(f"find the network {name}"):
        details = engine.api.inspect_network(name)
    return Network(details["Id"], details["Name"], details["IPAM"]["Config"][0]["Subnet"])


def attach(engine: Engine, network: Network, container: Container, alias: str) -> str:
    """Put a running container on `network` under the name `alias`; its address there.

    The container must have been created on some network: one without any can't be attached.
    """
    api: Any = engine.api
    with translated("attach a container to a network"):
        api.connect_container_to_network(container.id, network.id, aliases=[alias])
    return address(engine, network, container)


def address(engine: Engine, network: Network, container: Container) -> str:
    """The container's IPv4 address on `network`. Raises EngineRefused when it has none."""
    with translated("look at a container"):
        details = engine.api.inspect_container(container.id)
    for place in details["NetworkSettings"]["Networks"].values():
        if place["NetworkID"] == network.id and place["IPAddress"]:
            return str(place["IPAddress"])
    raise EngineRefused(f"The engine gave {container.name} no address on {network.name}.")


def detach(engine: Engine, network: Network, container: Container) -> None:
    """Take a container off `network`; fine if it is not on it."""
    from docker.errors import APIError

    api: Any = engine.api
    with translated("detach a container from a network"):
        try:
            api.disconnect_container_from_network(container.id, network.id, force=True)
        except APIError as error:
            if "is not connected" not in str(error.explanation):
                raise
