"""`python -m server.fetch`: one HTTP request from where the gateway stands, for the orchestrator.

stdin: JSON with `url`, `method`, `headers`, `body` (text) and `timeout_s`. stdout: one JSON line
with `status` and `headers`, or with `error`; then the body as it comes.
"""

from __future__ import annotations

import http.client
import json
import sys
from typing import Any
from urllib.parse import urlsplit


def main() -> int:
    order = json.load(sys.stdin)
    try:
        answer = _ask(order)
        _say({"status": answer.status, "headers": dict(answer.getheaders())})
    except (OSError, http.client.HTTPException) as exc:
        _say({"error": str(exc) or type(exc).__name__, "timeout": isinstance(exc, TimeoutError)})
        return 0
    try:
        while chunk := answer.read1(1 << 16):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
    except (OSError, http.client.HTTPException) as exc:
        sys.stderr.write(f"{exc or type(exc).__name__}\n")
        return 1
    return 0


def _ask(order: dict[str, Any]) -> http.client.HTTPResponse:
    url = urlsplit(order["url"])
    if url.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            url.hostname or "", url.port, timeout=order["timeout_s"]
        )
    else:
        connection = http.client.HTTPConnection(
            url.hostname or "", url.port, timeout=order["timeout_s"]
        )
    path = url.path + (f"?{url.query}" if url.query else "")
    headers = dict(order.get("headers") or {})
    if order["body"]:
        headers["Content-Type"] = "application/json"
    connection.request(order["method"], path, body=order["body"] or None, headers=headers)
    return connection.getresponse()


def _say(line: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(line).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
