"""The way from a container to an Ollama on the host's loopback: a small TCP relay of ours."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from urllib.parse import SplitResult, urlsplit

from orchestrator.errors import ModelServerUnreachable, UsageError
from orchestrator.sandbox.engine import EngineInfo

OLLAMA_PORT = 11434
CONNECT_S = 10.0
CHUNK = 1 << 16


def parse_url(
    url: str, option: str = "--ollama-url", port_if_none: int | None = OLLAMA_PORT
) -> SplitResult:
    """`host`, `host:port` or an http(s) URL. Raises UsageError with an example."""
    with_scheme = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(with_scheme)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"{option} {url!r} is no address of a server; "
            f"write e.g. http://127.0.0.1:{port_if_none or 8080}"
        )
    if port is None and port_if_none is not None and "://" not in url:
        parts = parts._replace(netloc=f"{parts.netloc}:{port_if_none}")
    return parts


def is_loopback(host: str) -> bool:
    """Whether the name means this very machine; 0.0.0.0 does when it is connected to."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


@contextmanager
def route(url: str, info: EngineInfo, subnet: str, option: str = "--ollama-url") -> Iterator[str]:
    """The server's URL as containers on the network `subnet` reach it, while the block lasts.

    A loopback address becomes that of a relay on the network's own gateway address; behind Docker
    Desktop, whose containers run in a virtual machine, `host.docker.internal`; anything else stays.
    Raises UsageError, ModelServerUnreachable.
    """
    parts = parse_url(url, option)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if not is_loopback(host):
        yield parts.geturl()
    elif "Docker Desktop" in info.operating_system:
        yield parts._replace(netloc=f"host.docker.internal:{port}").geturl()
    else:
        with _relay(url, host, port, subnet, option) as relay:
            yield parts._replace(netloc=f"{relay.host}:{relay.port}").geturl()


def _relay(url: str, host: str, port: int, subnet: str, option: str) -> Relay:
    network = ipaddress.ip_network(subnet)
    # The engine gives a network's first address to its bridge.
    bridge = str(next(network.hosts()))
    try:
        return Relay((host, port), bridge, network)
    except OSError as exc:
        raise ModelServerUnreachable(
            f"containers can't reach {url}: the engine's network {subnet} is not on this machine "
            f"({exc.strerror}); let the server listen on an address that containers reach "
            f"(for Ollama OLLAMA_HOST=0.0.0.0) and name that with {option}"
        ) from exc


class Relay:
    """Listens on `host`, for peers inside `allowed` only, and passes all on to `target`.

    A context manager; leaving it ends every connection.
    """

    def __init__(
        self,
        target: tuple[str, int],
        host: str,
        allowed: ipaddress.IPv4Network | ipaddress.IPv6Network,
    ) -> None:
        self._target = target
        self._allowed = allowed
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listening = socket.create_server((host, 0))
        self.host = host
        self.port = int(self._listening.getsockname()[1])

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True, name="orch-relay").start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # shutdown, not close alone: only that wakes the thread that waits in accept.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            left = list(self._open)
        for connection in left:
            self._end(connection)

    def _accept(self) -> None:
        while True:
            try:
                incoming, address = self._listening.accept()
            except OSError:
                return
            if ipaddress.ip_address(address[0]) not in self._allowed:
                incoming.close()
                continue
            threading.Thread(target=self._serve, args=(incoming,), daemon=True).start()

    def _serve(self, incoming: socket.socket) -> None:
        try:
            outgoing = socket.create_connection(self._target, CONNECT_S)
        except OSError:
            incoming.close()
            return
        outgoing.settimeout(None)
        with self._lock:
            self._open |= {incoming, outgoing}
        back = threading.Thread(target=self._pump, args=(outgoing, incoming), daemon=True)
        back.start()
        self._pump(incoming, outgoing)
        back.join()
        for connection in (incoming, outgoing):
            self._end(connection)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        """One direction to its end; the end is passed on, so that a half-closed peer is heard."""
        try:
            while data := source.recv(CHUNK):
                sink.sendall(data)
        except OSError:
            # Broken on one side: broken on both, or a half reply would wait for its rest.
            self._end(source)
            self._end(sink)
            return
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _end(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
