"""The official Python SDK behind a line protocol: one JSON request a line in, one JSON answer a line out.

    {"id": 1, "op": "connect", "conn": "a", "era": "2025", "target": {"command": "…", "args": [], "env": {}}}
    {"id": 2, "op": "list", "conn": "a"}
    {"id": 3, "op": "call", "conn": "a", "name": "echo", "arguments": {}, "timeout": 60}
    {"id": 4, "op": "cancel", "conn": "a", "name": "slow", "arguments": {}}
    {"id": 5, "op": "notifications", "conn": "a"}
    {"id": 6, "op": "close", "conn": "a"}

Answers carry what was on the wire, read from under the SDK, so that a field the SDK does not know is compared too.
What the SDK made of it is `outcome`.
"""

import asyncio
import json
import sys
import warnings
from contextlib import asynccontextmanager

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

warnings.simplefilter("ignore")


class Wire:
    """Every message of one connection, in order."""

    def __init__(self):
        self.sent = []
        self.received = []
        self.changed = asyncio.Event()

    def last_request(self, method):
        """Id of the last request of this method."""
        return next(m["id"] for m in reversed(self.sent) if m.get("method") == method and "id" in m)

    def answer(self, request_id):
        """The response to a request, with its place in the order of arrival."""
        for place, message in enumerate(self.received):
            if message.get("id") == request_id and "method" not in message:
                return place, message
        return None, None

    def progress(self, token):
        """Progress notifications of one request, each with its place in the order of arrival."""
        return [
            (place, m["params"])
            for place, m in enumerate(self.received)
            if m.get("method") == "notifications/progress" and m["params"].get("progressToken") == token
        ]


class Tap:
    """One end of a transport's streams that also writes each message down."""

    def __init__(self, stream, log, wire):
        self.stream, self.log, self.wire = stream, log, wire

    def note(self, item):
        message = getattr(item, "message", None)
        if message is not None:
            self.log.append(message.model_dump(by_alias=True, mode="json", exclude_unset=True))
            self.wire.changed.set()
            self.wire.changed = asyncio.Event()

    async def send(self, item):
        self.note(item)
        await self.stream.send(item)

    async def receive(self):
        item = await self.stream.receive()
        self.note(item)
        return item

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self):
        await self.stream.__aenter__()
        return self

    async def __aexit__(self, *exc):
        return await self.stream.__aexit__(*exc)

    def __getattr__(self, name):
        return getattr(self.stream, name)


@asynccontextmanager
async def tapped(target, wire):
    if "url" in target:
        transport = streamable_http_client(target["url"])
    else:
        transport = stdio_client(StdioServerParameters(**target), errlog=sys.stderr)
    async with transport as (read, write):
        yield Tap(read, wire.received, wire), Tap(write, wire.sent, wire)


class Connection:
    """One client. The SDK ties a client to the task that opened it, so each has its own."""

    def __init__(self, request):
        self.requests = asyncio.Queue()
        self.wire = Wire()
        self.opening = request
        self.task = asyncio.create_task(self.run())

    async def run(self):
        request = self.opening
        mode = "legacy" if request["era"] == "2025" else "2026-07-28"
        try:
            async with Client(tapped(request["target"], self.wire), mode=mode, cache=None) as client:
                if mode != "legacy" and mode not in (await client.session.send_discover(mode))["supportedVersions"]:
                    raise RuntimeError(f"the server does not offer {mode}")
                reply(request, {"version": client.protocol_version})
                request = None
                while (request := await self.requests.get())["op"] != "close":
                    try:
                        reply(request, await getattr(self, request["op"])(client, request))
                    except Exception as error:  # noqa: BLE001 the orchestrator judges it
                        fail(request, error)
                    request = None
        except BaseException as error:  # noqa: BLE001
            if request is None or request["op"] != "close":
                fail(request or {"id": None}, error)
                while not self.requests.empty():
                    fail(self.requests.get_nowait(), error)
                return
        reply(request, {})

    async def list(self, client, request):
        tools, cursor = [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            _, answer = self.wire.answer(self.wire.last_request("tools/list"))
            tools += answer["result"]["tools"]
            cursor = page.next_cursor
            if not cursor:
                return {"tools": tools}

    async def call(self, client, request):
        async def progress(*_):
            pass

        outcome, before = "result", len(self.wire.sent)
        try:
            await client.call_tool(
                request["name"],
                request.get("arguments"),
                read_timeout_seconds=request.get("timeout", 60),
                progress_callback=progress if request.get("progress") else None,
            )
        except Exception as error:  # noqa: BLE001
            outcome = type(error).__name__
        if not any(m.get("method") == "tools/call" for m in self.wire.sent[before:]):
            return {"outcome": outcome}
        sent = self.wire.last_request("tools/call")
        place, answer = self.wire.answer(sent)
        if answer is None:
            return {"outcome": f"no answer: {outcome}"}
        seen = self.wire.progress(self.token(sent))
        return {
            "outcome": outcome,
            **{key: answer[key] for key in ("result", "error") if key in answer},
            "progress": [params for _, params in seen],
            "progress_before_answer": all(at < place for at, _ in seen),
        }

    def token(self, request_id):
        message = next(m for m in self.wire.sent if m.get("id") == request_id)
        return message["params"].get("_meta", {}).get("progressToken", object())

    async def cancel(self, client, request):
        first = asyncio.Event()

        async def progress(*_):
            first.set()

        call = asyncio.create_task(
            client.call_tool(request["name"], request.get("arguments"), progress_callback=progress)
        )
        waited = asyncio.create_task(first.wait())
        await asyncio.wait([call, waited], timeout=request.get("timeout", 60), return_when=asyncio.FIRST_COMPLETED)
        waited.cancel()
        if call.done():
            return {"outcome": f"ended by itself: {call.exception() or 'a result'}"}
        sent = self.wire.last_request("tools/call")
        call.cancel()
        try:
            await call
            outcome = "result"
        except asyncio.CancelledError:
            outcome = "cancelled"
        except Exception as error:  # noqa: BLE001
            outcome = type(error).__name__
        return {"outcome": outcome, "progressed": first.is_set(), "request": sent}

    async def notifications(self, client, request):
        return {
            "methods": [
                m["method"] for m in self.wire.received if "id" not in m and m["method"] != "notifications/progress"
            ]
        }


def reply(request, value):
    sys.stdout.write(json.dumps({"id": request["id"], "ok": value}) + "\n")
    sys.stdout.flush()


def fail(request, error):
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    sys.stdout.write(json.dumps({"id": request["id"], "failed": f"{type(error).__name__}: {error}"}) + "\n")
    sys.stdout.flush()


async def main():
    connections = {}
    reader = asyncio.StreamReader(limit=64 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        request = json.loads(line)
        if request["op"] == "connect":
            connections[request["conn"]] = Connection(request)
        elif connections[request["conn"]].task.done():
            fail(request, RuntimeError("the connection is closed"))
        else:
            connections[request["conn"]].requests.put_nowait(request)
    for connection in connections.values():
        connection.requests.put_nowait({"id": None, "op": "close"})
    await asyncio.wait([c.task for c in connections.values()] or [asyncio.sleep(0)], timeout=10)


asyncio.run(main())
