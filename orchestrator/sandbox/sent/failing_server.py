"""A model server that fails in the ways that an agent must survive, by the name of the model.

Runs as `python3 -I -S -c TEXT`. `gone`: it does not have the model. `cut`: it breaks off in the
middle of a file. `hang`: it begins and never ends. Speaks as much of Ollama's API as that takes.
"""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8080
HALF = "Here it is.\n\n### FILE: half.txt\n```\nthe first line\n"
HANG_S = 3600


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._whole(200, {"version": "0.0.0"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        model = str(asked.get("model")).partition(":")[0]
        if model == "gone":
            self._whole(404, {"error": f"model '{model}' not found"})
        elif not self.path.endswith(("/chat", "/generate")):
            self._whole(200, {})
        else:
            self._half(model)

    def _half(self, model: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/x-ndjson")
        self.end_headers()
        for word in HALF.splitlines(keepends=True):
            line = {"model": model, "message": {"role": "assistant", "content": word}}
            self.wfile.write(json.dumps(line | {"done": False}).encode() + b"\n")
            self.wfile.flush()
        if model == "hang":
            time.sleep(HANG_S)

    def _whole(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("0.0.0.0", PORT), Handler).serve_forever()  # noqa: S104
