"""Try to reach what must not be reachable; tell what answered, as JSON on stdout.

Runs in a container, as `python3 -I -S reach.py PLAN`. PLAN is JSON: `{"addresses": [[host, port],
...], "names": [...], "wait_s": N}`. The answer is a list of `[what, how]`, empty where nothing
answered. Opens one connection to each address and sends nothing over it.
"""

from __future__ import annotations

import errno
import json
import socket
import sys
import threading
from pathlib import Path

NO_ANSWER = {
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.EADDRNOTAVAIL,
    errno.EAFNOSUPPORT,
}
NO_SUCH_NAME = {socket.EAI_NONAME, socket.EAI_NODATA}
DEFAULT_ROUTE = "00000000"


class Answers:
    """What answered so far. A look-up that never returns keeps its thread, not the others."""

    def __init__(self) -> None:
        self.found: list[list[str]] = []

    def connect(self, host: str, port: int, wait_s: float) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_STREAM) as tried:
                tried.settimeout(wait_s)
                tried.connect((host, port))
        except TimeoutError:
            return
        except OSError as error:
            # A refusal is an answer: someone is there and says no.
            if error.errno not in NO_ANSWER:
                self.found.append([f"{host} port {port}", error.strerror or str(error)])
        else:
            self.found.append([f"{host} port {port}", "connected"])

    def resolve(self, name: str) -> None:
        try:
            how = f"resolved to {socket.getaddrinfo(name, 443)[0][4][0]}"
        except socket.gaierror as error:
            # "There is no such name" is an answer too: someone outside was asked.
            if error.errno not in NO_SUCH_NAME:
                return
            how = "answered: no such name"
        self.found.append([f"name {name}", how])

    def route(self) -> None:
        """A default route leads out, whether or not something is there just now."""
        for line in Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]:
            device, destination, gateway = line.split()[:3]
            if destination == DEFAULT_ROUTE:
                address = socket.inet_ntoa(bytes.fromhex(gateway)[::-1])
                self.found.append(["default route", f"by {device} over {address}"])


def main() -> None:
    plan = json.loads(sys.argv[1])
    answers = Answers()
    answers.route()
    wait_s = float(plan["wait_s"])
    threads = [
        threading.Thread(target=answers.connect, args=(host, port, wait_s), daemon=True)
        for host, port in plan["addresses"]
    ]
    threads += [
        threading.Thread(target=answers.resolve, args=(name,), daemon=True)
        for name in plan["names"]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(wait_s + 1)
    print(json.dumps(sorted(answers.found)))


if __name__ == "__main__":
    main()
