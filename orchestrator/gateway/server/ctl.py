"""`python -m server.ctl`: one order as JSON on stdin, its answer as JSON on stdout."""

from __future__ import annotations

import socket
import sys


def main(path: str) -> int:
    order = sys.stdin.buffer.read().strip() + b"\n"
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError as exc:
            sys.stderr.write(f"the gateway does not listen at {path}: {exc}\n")
            return 1
        connection.sendall(order)
        while data := connection.recv(1 << 16):
            sys.stdout.buffer.write(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "/tmp/gateway.sock"))
