"""What a hostile or a clumsy agent sends: it gets a clear answer, and takes nothing from others."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_ollama import FakeOllama
from live_gateway import LiveGateway
from test_gateway_server import ASK, client, wait_until

from orchestrator.gateway.server import access, body, calls, door, recorder
from orchestrator.records.calls import CallRecord, loads_whole

WHOLE = json.dumps(ASK).encode()


@pytest.fixture
def fake() -> Iterator[FakeOllama]:
    with FakeOllama("m") as server:
        yield server


def address(gateway: LiveGateway) -> tuple[str, int]:
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    return host, int(port)


def head(token: str, *lines: str, path: str = "/api/chat", host: str = "gateway") -> bytes:
    asked = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {token}", *lines]
    return ("\r\n".join(asked) + "\r\n\r\n").encode("latin-1")


def sent(gateway: LiveGateway, data: bytes) -> bytes:
    """Everything that is answered until the gateway ends the connection."""
    with socket.create_connection(address(gateway), 20) as connection:
        connection.sendall(data)
        answer = b""
        while chunk := connection.recv(1 << 16):
            answer += chunk
    return answer


def until(connection: socket.socket, words: bytes) -> None:
    """Read until `words` were answered."""
    answer = b""
    while words not in answer:
        chunk = connection.recv(1 << 16)
        assert chunk, answer
        answer += chunk


def post(gateway: LiveGateway, token: str, content: bytes, **headers: str) -> httpx.Response:
    with client(gateway, token, **headers) as http:
        return http.post("/api/chat", content=content)


def nested(depth: int) -> bytes:
    return WHOLE[:-1] + b', "x": ' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (nested(body.MAX_DEPTH), 400, "nested more than 64 deep"),
        (nested(900), 400, "nested more than 64 deep"),
        (nested(5000), 400, "not valid JSON"),
        (b'{"model": "m", "options": {"temperature": 1e999}}', 400, "not valid JSON"),
        (b'{"model": "m", "options": {"temperature": Infinity}}', 400, "not valid JSON"),
        (b'{"model": "m", "options": {"seed": ' + b"9" * 5000 + b"}}", 400, "not valid JSON"),
        (b'{"model": "m", "x": [' + b"{}," * 60_000 + b"1]}", 413, "more than 50000 values"),
        (b'{"model": "m", "x": "' + b"a" * (50 << 20) + b'"}', 413, "larger than 8388608 bytes"),
        (b'{"model": "' + b"x" * (1 << 20) + b'"}', 404, "model 'xxx"),
        ('{"model": "m\u202e\\u0000é"}'.encode(), 404, "not found; this stage has 'm'"),
    ],
)
def test_what_is_too_much_is_refused_in_a_sentence(
    gateway: LiveGateway, fake: FakeOllama, content: bytes, status: int, words: str
) -> None:
    token = gateway.open()
    answer = post(gateway, token, content)
    assert answer.status_code == status
    assert words in answer.json()["error"]
    assert len(answer.content) < 1000
    assert post(gateway, token, WHOLE).status_code == 200
    assert len(gateway.close(token)) == 2


def test_what_is_almost_too_much_passes_and_can_be_read_back(
    gateway: LiveGateway, tmp_path: Path
) -> None:
    token = gateway.open(num_ctx=131072)
    # A text may hold any number of commas and brackets.
    text = 'a, [b], {c: "d\\"}' * 15_000
    odd = {"messages": [{"role": "user", "content": text}], "\ud83d": 1e300}
    assert post(gateway, token, json.dumps(ASK | odd).encode()).status_code == 200
    assert post(gateway, token, nested(body.MAX_DEPTH - 1)).status_code == 200
    (file,) = (tmp_path / "records").glob("calls-*.jsonl")
    first, second = file.read_bytes().splitlines()
    assert CallRecord.model_validate(loads_whole(first)).request["messages"][0]["content"] == text
    CallRecord.model_validate(loads_whole(second))


def test_a_compressed_request_is_named_as_such(gateway: LiveGateway) -> None:
    token = gateway.open()
    answer = post(gateway, token, gzip.compress(WHOLE), **{"Content-Encoding": "gzip"})
    assert answer.status_code == 415
    assert "compressed ('gzip')" in answer.json()["error"]
    assert post(gateway, token, WHOLE, **{"Content-Encoding": "identity"}).status_code == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02 no HTTP\r\n\r\n",
        b"GET /\r\n\r\n",
        head("t", "Content-Length: -5"),
        head("t", "Content-Length: 5", "Content-Length: 6"),
        head("t", "X: " + "a" * 100_000)[:90_000],
        head("t", path="/\xff\x00"),
    ],
)
def test_what_is_no_http_is_answered_and_harms_nobody(gateway: LiveGateway, data: bytes) -> None:
    assert sent(gateway, data).startswith(b"HTTP/1.1 400 ")
    assert post(gateway, gateway.open(), WHOLE).status_code == 200


def test_calls_one_after_the_other_on_one_connection_that_waits_for_nothing(
    gateway: LiveGateway,
) -> None:
    token = gateway.open()
    length = f"Content-Length: {len(WHOLE)}"
    data = (head(token, length) + WHOLE) * 3 + head(token, length, "Connection: close") + WHOLE
    assert sent(gateway, data).count(b"HTTP/1.1 200 OK") == 4
    assert [call.seq for call in gateway.close(token)] == [0, 1, 2, 3]


def test_a_token_is_good_in_one_place_only(gateway: LiveGateway, fake: FakeOllama) -> None:
    token = gateway.open()
    wrong: list[dict[str, Any]] = [
        {"params": {"token": token}},
        {"headers": {"X-Api-Key": token}},
        {"headers": {"Cookie": f"Authorization=Bearer {token}"}},
        {"auth": ("orch", token)},
        {"json": ASK | {"authorization": f"Bearer {token}"}},
    ]
    for one in wrong:
        answer = httpx.post(f"{gateway.url}/api/chat", **({"json": ASK} | one))
        assert answer.status_code == 401
    two = head(token, "Connection: close").replace(b"Auth", b"Authorization: Bearer other\r\nAuth")
    assert b"401" in sent(gateway, two).splitlines()[0]
    assert fake.requests == []
    assert gateway.close(token) == []


def test_what_this_host_is_called_leads_nowhere(gateway: LiveGateway, fake: FakeOllama) -> None:
    token = gateway.open()
    for host in ("x/api/blobs?", "[", "", "a b"):
        asked = head(token, "Connection: close", path="/api/tags", host=host)
        answer = sent(gateway, asked.replace(b"POST", b"GET"))
        assert answer.startswith(b"HTTP/1.1 200 ")
    assert {one["path"] for one in fake.requests} == {"/api/tags"}


def test_tokens_of_two_runs_at_once_are_each_good_for_their_own(
    gateway: LiveGateway, fake: FakeOllama
) -> None:
    fake.models["n:latest"] = fake.models["m:latest"]
    first = gateway.open("m", run="a")
    second = gateway.open("n", run="b", sources=("10.1.2.0/24",))
    assert post(gateway, first, json.dumps(ASK | {"model": "n"}).encode()).status_code == 404
    answer = post(gateway, second, json.dumps(ASK | {"model": "n"}).encode())
    assert (answer.status_code, "network" in answer.json()["error"]) == (403, True)
    assert fake.asked("/api/chat") == []
    assert [call.run for call in gateway.close(first)] == ["a"]
    assert gateway.close(second) == []


# --- what is held ----------------------------------------------------------------------------


def begun(gateway: LiveGateway, token: str, size: int, part: int) -> socket.socket:
    """A request that has sent `part` of its `size` bytes."""
    connection = socket.create_connection(address(gateway), 20)
    connection.sendall(head(token, f"Content-Length: {size}") + b"a" * part)
    return connection


def seats(gateway: LiveGateway, token: str) -> set[access.Seat]:
    return gateway.desk.accesses._open[token].seats


def test_requests_at_once_are_so_many_and_so_large(
    gateway: LiveGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "MAX_SEATS", 2)
    monkeypatch.setattr(access, "MAX_HELD", 1000)
    token, other = gateway.open(), gateway.open()
    held = begun(gateway, token, 900, 800)
    wait_until(lambda: len(seats(gateway, token)) == 1)
    answer = post(gateway, token, b" " * 300 + WHOLE)
    assert (answer.status_code, "larger than 1000" in answer.json()["error"]) == (429, True)
    second = begun(gateway, token, 900, 10)
    wait_until(lambda: len(seats(gateway, token)) == 2)
    answer = post(gateway, token, WHOLE)
    assert (answer.status_code, "2 requests are in progress" in answer.json()["error"]) == (
        429, True,
    )  # fmt: skip
    assert post(gateway, other, b" " * 300 + WHOLE).status_code == 200
    held.close()
    second.close()
    wait_until(lambda: not seats(gateway, token))
    assert post(gateway, token, b" " * 300 + WHOLE).status_code == 200
    wait_until(lambda: not seats(gateway, token))


def test_a_call_in_progress_keeps_its_seat(
    gateway: LiveGateway, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "MAX_SEATS", 1)
    fake.faults.append("hang-midway")
    token = gateway.open()
    with client(gateway, token) as http:
        with http.stream("POST", "/api/chat", json=ASK) as streamed:
            lines = streamed.iter_lines()
            next(lines)
            assert post(gateway, token, WHOLE).status_code == 429
        wait_until(lambda: not seats(gateway, token))
        assert post(gateway, token, WHOLE).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(
    gateway: LiveGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "BODY_S", 0.2)
    token = gateway.open()
    for lines in (["Content-Length: 500"], ["Transfer-Encoding: chunked"]):
        with socket.create_connection(address(gateway), 20) as connection:
            connection.sendall(head(token, *lines) + b"5\r\n{")
            until(connection, b"not there within 0.2 s")
    assert [call.error is None for call in gateway.close(token)] == [False, False]


def test_a_body_that_comes_after_its_access_was_closed_reaches_no_model(
    gateway: LiveGateway, fake: FakeOllama
) -> None:
    token = gateway.open()
    with begun(gateway, token, len(WHOLE), 0) as connection:
        wait_until(lambda: len(seats(gateway, token)) == 1)
        assert gateway.close(token) == []
        connection.sendall(WHOLE)
        until(connection, b"no longer good")
    assert fake.requests == []
    assert gateway.desk.recorder.lines == 0


def test_connections_of_one_address_are_counted(
    gateway: LiveGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MAX_CONNECTIONS", 3)
    held = [socket.create_connection(address(gateway), 20) for _ in range(3)]
    with pytest.raises(httpx.TransportError):
        post(gateway, gateway.open(), WHOLE)
    # Another address is another agent.
    with socket.create_connection(address(gateway), 20, source_address=("127.0.0.9", 0)) as other:
        other.sendall(head("t", "Content-Length: 0"))
        assert other.recv(100).startswith(b"HTTP/1.1 401 ")
    for one in held:
        one.close()
    done = threading.Event()

    def answers() -> bool:
        try:
            return post(gateway, gateway.open(), WHOLE).status_code == 200
        except httpx.TransportError:
            return done.wait(0.01)

    wait_until(answers)


def test_refusals_do_not_fill_the_record(
    gateway: LiveGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_REFUSALS", 3)
    token = gateway.open()
    large = json.dumps({"model": "other", "x": "a" * (2 << 20)}).encode()
    statuses = [post(gateway, token, large).status_code for _ in range(5)]
    assert statuses == [404] * 5
    assert post(gateway, token, WHOLE).status_code == 200
    *refused, whole = gateway.close(token)
    assert [call.request for call in refused] == [{}] * 3
    told = [call.error and "no further refusal" in call.error.sentence for call in refused]
    assert told == [False, False, True]
    assert whole.error is None


# --- what can't be recorded --------------------------------------------------------------------


def test_a_full_disk_ends_the_calls_and_leaves_no_half_line(
    gateway: LiveGateway, fake: FakeOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = gateway.open()
    assert post(gateway, token, WHOLE).status_code == 200
    room = [100]
    real = recorder.os.write

    def write(file: int, data: bytes) -> int:
        if not room:
            raise OSError(28, "No space left on device")
        return real(file, data[: room.pop()])

    with monkeypatch.context() as full:
        full.setattr(recorder.os, "write", write)
        answer = post(gateway, token, WHOLE)
    last = json.loads(answer.text.splitlines()[-1])
    assert last == {"error": "host-disk-full: a call can't be recorded: No space left on device"}
    asked = len(fake.asked("/api/chat"))
    assert post(gateway, token, WHOLE).status_code == 507
    assert len(fake.asked("/api/chat")) == asked
    answer_of_close = gateway.order("close", token=token)
    assert "No space left" in answer_of_close["lost"]
    assert answer_of_close["lines"] == 1
    assert len(Path(answer_of_close["file"]).read_text().splitlines()) == 1
