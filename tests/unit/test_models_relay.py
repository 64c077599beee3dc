"""The way to an Ollama on this host's loopback, and what else a URL may mean."""

import ipaddress
import socket
import threading
from dataclasses import replace

import httpx
import pytest
from fake_ollama import FakeOllama

from orchestrator.errors import ModelServerUnreachable, UsageError
from orchestrator.models.relay import Relay, is_loopback, parse_url, route
from orchestrator.sandbox.engine import EngineInfo

LINUX = EngineInfo(
    version="26.1.5", api="1.45", storage_driver="overlay2", cgroup_version=1, ncpu=2,
    memory_bytes=1 << 34, runtimes=("runc",), cdi_devices=(), operating_system="Debian GNU/Linux",
    root_dir="/var/lib/docker", free_bytes=None,
)  # fmt: skip
DESKTOP = replace(LINUX, operating_system="Docker Desktop")
LOCAL = ipaddress.ip_network("127.0.0.0/8")
ELSEWHERE = "192.0.2.0/24"


@pytest.mark.parametrize(
    ("url", "netloc"),
    [
        ("http://127.0.0.1:11434", "127.0.0.1:11434"),
        ("127.0.0.1", "127.0.0.1:11434"),
        ("gpu-box:8080", "gpu-box:8080"),
        ("https://ollama.example", "ollama.example"),
        ("http://[::1]:11434", "[::1]:11434"),
    ],
)
def test_addresses(url: str, netloc: str) -> None:
    assert parse_url(url).netloc == netloc


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://x:notaport", "http://[::1"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="--ollama-url"):
        parse_url(url)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.2", True),
        ("::1", True),
        ("0.0.0.0", True),
        ("10.0.0.1", False),
        ("ollama", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_another_host_stays_as_it_is() -> None:
    with route("http://gpu-box:11434", LINUX, ELSEWHERE) as url:
        assert url == "http://gpu-box:11434"


def test_behind_docker_desktop_the_host_has_a_name() -> None:
    with route("http://localhost:11434", DESKTOP, ELSEWHERE) as url:
        assert url == "http://host.docker.internal:11434"


def test_an_engine_elsewhere_is_said() -> None:
    with (
        pytest.raises(ModelServerUnreachable, match="OLLAMA_HOST"),
        route("http://127.0.0.1:11434", LINUX, ELSEWHERE),
    ):
        pass


def test_loopback_becomes_the_relays_address_while_the_block_lasts() -> None:
    with FakeOllama("m") as fake:
        # A network whose first address is this machine's, as a bridge's is.
        with route(fake.url, LINUX, "127.0.0.0/29") as url:
            assert url.startswith("http://127.0.0.1:")
            assert url != fake.url
            ask = {"model": "m", "messages": [{"content": "x"}]}
            lines = httpx.post(f"{url}/api/chat", json=ask).text.splitlines()
            assert '"done": true' in lines[-1]
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/api/version")


@pytest.mark.parametrize("fault", ["cut", "hang-midway"])
def test_a_cut_reaches_the_other_side(fault: str) -> None:
    ask = {"model": "m", "messages": [{"content": "x"}]}
    with FakeOllama("m") as fake, Relay(("127.0.0.1", fake.port), "127.0.0.1", LOCAL) as relay:
        fake.reply = "x" * 100
        fake.faults.append(fault)
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadTimeout)):
            httpx.post(f"http://{relay.host}:{relay.port}/api/chat", json=ask, timeout=0.5)
        pause = threading.Event()
        while fault == "hang-midway" and not fake.clients_gone:
            pause.wait(0.01)


def test_peers_from_elsewhere_are_turned_away() -> None:
    with (
        FakeOllama("m") as fake,
        Relay(("127.0.0.1", fake.port), "127.0.0.1", ipaddress.ip_network(ELSEWHERE)) as relay,
    ):
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{relay.port}/api/version")
        assert fake.requests == []


def test_leaving_ends_open_connections() -> None:
    with FakeOllama("m") as fake:
        relay = Relay(("127.0.0.1", fake.port), "127.0.0.1", LOCAL)
        with relay:
            peer = socket.create_connection(("127.0.0.1", relay.port), 10)
            peer.sendall(b"GET /api/version HTTP/1.1\r\nHost: x\r\n\r\n")
            assert peer.recv(100)
        peer.settimeout(10)
        while peer.recv(1 << 16):
            pass
        peer.close()


def test_a_server_that_is_not_there_ends_the_connection() -> None:
    with Relay(("127.0.0.1", 9), "127.0.0.1", LOCAL) as relay, pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{relay.port}/", timeout=10)
