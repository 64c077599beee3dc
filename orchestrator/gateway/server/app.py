"""What agents see: Ollama's API and OpenAI's, for one model, with a token, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from .access import Access, Refused, Seat
from .body import read_body
from .calls import Asked, Call, record_refusal
from .causes import CAUSES, Failed
from .desk import Desk
from .dialects import Dialect, Native
from .openai import OpenAI
from .upstreams import Line

Endpoint = Callable[[Request, Access, Seat], Awaitable[Response]]
_ERRORS = Native("chat")
MAX_REFUSED_BODY = 1 << 20
"""Bytes of a request that are still recorded when it is refused."""


def make_app(desk: Desk) -> Starlette:
    agents = Agents(desk)
    routes = [
        Route("/api/chat", agents.calls(lambda: Native("chat")), methods=["POST"]),
        Route("/api/generate", agents.calls(lambda: Native("generate")), methods=["POST"]),
        Route("/api/show", agents.guarded(agents.show), methods=["POST"]),
        Route("/api/tags", agents.guarded(agents.inventory), methods=["GET"]),
        Route("/api/ps", agents.guarded(agents.inventory), methods=["GET"]),
        Route("/api/version", agents.guarded(agents.version), methods=["GET"]),
        Route("/v1/chat/completions", agents.calls(OpenAI), methods=["POST"]),
        Route("/v1/models", agents.guarded(agents.models), methods=["GET"]),
        Route("/wallet", agents.guarded(agents.wallet), methods=["GET"]),
        Route("/{path:path}", agents.guarded(agents.nothing_else), methods=_ALL_METHODS),
    ]
    return Starlette(routes=routes)


_ALL_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Agents:
    """The endpoints. Each is reached only with a good token from the right network."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def guarded(
        self, endpoint: Endpoint, dialect: Dialect = _ERRORS
    ) -> Callable[[Request], Awaitable[Response]]:
        """`endpoint` behind the token; what is refused is said in `dialect`."""

        async def checked(request: Request) -> Response:
            source = request.client.host if request.client else ""
            try:
                access = self._desk.accesses.admit(request.headers.get("authorization"), source)
                return await _seated(endpoint, request, access)
            except Refused as refused:
                status, sentence = refused.status, f"refused: {refused}"
            except Failed as failed:
                status, sentence = CAUSES[failed.cause].status, failed.sentence
            except ClientDisconnect:
                return Response(status_code=499)
            return JSONResponse(dialect.error(sentence, status), status)

        return checked

    def calls(self, make: Callable[[], Dialect]) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of calls to a model in one dialect."""

        async def call(request: Request, access: Access, seat: Seat) -> Response:
            return await self._call(request, access, seat, make())

        return self.guarded(call, make())

    async def _call(
        self, request: Request, access: Access, seat: Seat, dialect: Dialect
    ) -> Response:
        body: dict[str, Any] = {}
        try:
            body = await _still(access, read_body(request, seat))
            self._check_model(access, body)
            native = _native(dialect, body)
        except Refused as refused:
            if not access.closed:
                kept = body if seat.bytes <= MAX_REFUSED_BODY else {}
                why = Failed("refused", str(refused))
                record_refusal(access, self._desk.recorder, dialect.name, kept, why)
            raise
        if access.lost:
            raise Failed("unrecorded", access.lost)
        if reached := access.wallet.exhausted():
            spent = Failed("budget-exhausted", f"{reached}; no further call is let through")
            record_refusal(access, self._desk.recorder, dialect.name, body, spent)
            raise spent
        asked = Asked(dialect.name, dialect.endpoint, body, native)
        call = Call(
            access,
            self._desk.upstream_of(access, asked),
            self._desk.recorder,
            asked,
            retry_wait_s=self._desk.retry_wait_s,
        )
        return CallResponse(call, dialect, seat, stream=native["stream"])

    def _check_model(self, access: Access, body: dict[str, Any]) -> None:
        asked = body.get("model") or body.get("name")
        if not isinstance(asked, str) or _full(asked) != _full(access.model):
            shown = repr(asked)[:200]
            raise Refused(404, f"model {shown} not found; this stage has {access.model!r}")

    async def show(self, request: Request, access: Access, seat: Seat) -> Response:
        self._check_model(access, await _still(access, read_body(request, seat)))
        if access.upstream != "ollama":
            return JSONResponse(_stand_in_show(access))
        return JSONResponse(await self._desk.server().post("/api/show", {"model": access.model}))

    async def inventory(self, request: Request, access: Access, _: Seat) -> Response:
        """/api/tags or /api/ps with this stage's model only."""
        if access.upstream != "ollama":
            name = {"name": access.model, "model": access.model}
            return JSONResponse({"models": [name | {"size": 0, "digest": "", "details": {}}]})
        # Not `request.url`: that is made of what the agent calls this host, too.
        path = request.scope["path"]
        listed = (await self._desk.server().get(path)).get("models") or []
        own = [one for one in listed if _full(str(one.get("name"))) == _full(access.model)]
        return JSONResponse({"models": own})

    async def models(self, _: Request, access: Access, __: Seat) -> Response:
        one = {"id": access.model, "object": "model", "created": 0, "owned_by": "library"}
        return JSONResponse({"object": "list", "data": [one]})

    async def wallet(self, _: Request, access: Access, __: Seat) -> Response:
        """What the run may use, has used and has left."""
        return JSONResponse(access.wallet.told())

    async def version(self, _: Request, access: Access, __: Seat) -> Response:
        if access.upstream != "ollama":
            return JSONResponse({"version": f"0.0.0-{access.upstream}"})
        return JSONResponse(await self._desk.server().get("/api/version"))

    async def nothing_else(self, request: Request, access: Access, _: Seat) -> Response:
        what = f"{request.method} {request.scope['path']}"[:200]
        self._desk.accesses.refused["endpoint"] += 1
        sentence = f"{what} is not let through by the gateway"
        record_refusal(access, self._desk.recorder, what, {}, Failed("refused", sentence))
        raise Refused(403, sentence)


def _native(dialect: Dialect, body: dict[str, Any]) -> dict[str, Any]:
    try:
        return dialect.native(body)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise Refused(400, f"the request can't be understood: {exc!r}") from None


def _full(name: str) -> str:
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def _stand_in_show(access: Access) -> dict[str, Any]:
    """What Ollama would say of a model that it does not serve."""
    family = access.upstream
    return {
        "details": {"family": family, "format": "", "parameter_size": ""},
        "model_info": {
            "general.architecture": family,
            f"{family}.context_length": access.pins.num_ctx,
        },
        "capabilities": ["completion"],
    }


async def _seated(endpoint: Endpoint, request: Request, access: Access) -> Response:
    """The request has a seat until its answer is there; a call keeps it until it has ended."""
    seat = access.sit()
    response: Response | None = None
    try:
        response = await endpoint(request, access, seat)
    finally:
        if not isinstance(response, CallResponse):
            seat.leave()
    return response


async def _still(access: Access, reading: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """The body, unless the access was closed while it came. Raises Refused."""
    body = await reading
    if access.closed:
        raise Refused(401, "the token is no longer good")
    return body


class CallResponse(Response):
    """Streams a call's lines, or answers once it is whole; ends the call when the agent leaves."""

    def __init__(self, call: Call, dialect: Dialect, seat: Seat, *, stream: bool) -> None:
        super().__init__()
        self._seat = seat
        self._call = call
        self._dialect = dialect
        self._stream = stream
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.create_task(self._work(scope, receive, send))
        gone = asyncio.create_task(_until_gone(receive))
        tasks = self._call.access.tasks
        tasks.add(work)
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            tasks.discard(work)
            self._seat.leave()
        if not work.cancelled():
            work.result()

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def hand_on(line: Line) -> None:
            await self._begin(send)
            await send(_chunk(self._dialect.line(line)))

        try:
            await self._call.perform(hand_on if self._stream else None)
        except Failed as failed:
            status = CAUSES[failed.cause].status
            if not self._started:
                answer = JSONResponse(self._dialect.error(failed.sentence, status), status)
                await answer(scope, receive, send)
                return
            await send(_chunk(self._dialect.error_line(failed.sentence, status)))
        if self._stream:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            whole = self._dialect.whole(self._call.reply.whole())
            await JSONResponse(whole)(scope, receive, send)

    async def _begin(self, send: Send) -> None:
        if not self._started:
            self._started = True
            headers = [(b"content-type", self._dialect.media_type.encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})


def _chunk(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
