"""A stdio server that is well until one moment, and then does one thing wrong: `hostile.py MOMENT FAULT`.

The moment is a method of the bridge's (`server/discover`, `initialize`, `tools/list`, `tools/call`), or `start`.
Standard library only, and started without `site`: hundreds of them are.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

Message = dict[str, Any]

LARGE = 2 << 20
"""Bytes of a message that is over the limit of the tests."""
TEXT = "hostile and well"
"""What a call answers that is answered."""

answered: list[object] = []
"""The ids of the requests that had an answer."""


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


def result_of(method: str) -> object:
    """What a good server of the handshake era answers."""
    return {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "hostile", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": TEXT}]},
        "ping": {},
    }.get(method)


def good(id_: object, method: str) -> Message:
    result = result_of(method)
    reply: Message = {"jsonrpc": "2.0", "id": id_}
    if result is None:
        return {**reply, "error": {"code": -32601, "message": "Method not found"}}
    return {**reply, "result": result}


def sleep() -> NoReturn:
    while True:
        time.sleep(3600)


def raw(make: Callable[[Message], bytes]) -> Callable[[Message], None]:
    """Write these bytes in place of the answer."""
    return lambda reply: write(make(reply))


def altered(**changes: object) -> Callable[[Message], None]:
    """The answer with other members; `None` leaves one out."""

    def make(reply: Message) -> bytes:
        changed = {**reply, **changes}
        return line({name: value for name, value in changed.items() if value is not ...})

    return raw(make)


def close(*descriptors: int, then: str = "sleep") -> Callable[[Message], None]:
    def act(reply: Message) -> None:
        for descriptor in descriptors:
            os.close(descriptor)
        if then == "sleep":
            sleep()
        elif then == "answer":
            write(line(reply))

    return act


def leave(code: int, *, after: bytes = b"", says: str = "") -> Callable[[Message], None]:
    def act(reply: Message) -> None:
        write(after)
        if says:
            print(says, file=sys.stderr, flush=True)
        os._exit(code)

    return act


def die(number: int) -> Callable[[Message], None]:
    return lambda reply: os.kill(os.getpid(), number)


def drip(reply: Message) -> None:
    for byte in line(reply):
        os.write(1, bytes([byte]))
        time.sleep(0.002)


def half_and_rest(reply: Message) -> None:
    data = line(reply)
    write(data[:20])
    time.sleep(0.3)
    write(data[20:])


def flood(method: str, times: int, *, is_request: bool = False) -> Callable[[Message], None]:
    def act(reply: Message) -> None:
        for number in range(times):
            message: Message = {"jsonrpc": "2.0", "method": method, "params": {"level": "info", "data": number}}
            write(line({**message, "id": f"flood-{number}"} if is_request else message))
        write(line(reply))

    return act


def before(*messages: object) -> Callable[[Message], None]:
    """Other messages, and then the answer."""
    return lambda reply: write(
        b"".join(line(one) if not isinstance(one, bytes) else one for one in messages) + line(reply)
    )


def earlier_id(reply: Message) -> None:
    write(line({**reply, "id": answered[-1] if answered else 1}))


def nested(reply: Message) -> None:
    write(line(reply).replace(b'"result": {', b'"result": {"x": %b%b, ' % (b"[" * 100_000, b"]" * 100_000)))


FAULTS: dict[str, Callable[[Message], None]] = {
    "silent": lambda reply: sleep(),
    "slow": lambda reply: (time.sleep(0.3), write(line(reply)))[0],
    "drips": drip,
    "half a line and the rest": half_and_rest,
    "half a line": raw(lambda reply: line(reply)[:20]),
    "half a line, ended": raw(lambda reply: line(reply)[:20] + b"\n"),
    "cut off": raw(lambda reply: line(reply)[:-3] + b"\n"),
    "no JSON": raw(lambda reply: b"{jsonrpc: 2.0, 'id': %d, result: nothing}\n" % reply["id"]),
    "text": raw(lambda reply: b"Traceback (most recent call last):\n"),
    "text before": before(b"hello from print\n"),
    "JSON that is no message before": before({"level": "info", "id": 7, "text": "log"}, [1, 2], "x", 5, None),
    "binary before": before(bytes(range(256)) * 64 + b"\n"),
    "binary": raw(lambda reply: bytes(range(256)) * 64 + b"\n"),
    "NUL bytes before": before(b"\0" * 1000 + b"\n"),
    "byte order mark": raw(lambda reply: b"\xef\xbb\xbf" + line(reply)),
    "CRLF": raw(lambda reply: line(reply)[:-1] + b"\r\n"),
    "UTF-16": raw(lambda reply: json.dumps(reply).encode("utf-16") + b"\n"),
    "Latin-1": raw(lambda reply: line(reply).replace(b"hostile", b"h\xf6stile")),
    "many lines": raw(lambda reply: json.dumps(reply, indent=2).encode() + b"\n"),
    "batch": raw(lambda reply: line([reply])),
    "empty batch before": before([]),
    "blank lines before": before(b"\n \n\r\n"),
    "two on a line": raw(lambda reply: line({"jsonrpc": "2.0", "method": "notifications/x"})[:-1] + line(reply)),
    "too large": raw(lambda reply: line({**reply, "result": {"content": [], "x": "y" * LARGE}})),
    "too large, id last": raw(lambda reply: line({"jsonrpc": "2.0", "result": {"x": "y" * LARGE}, "id": reply["id"]})),
    "nested": nested,
    "id of another": lambda reply: write(line({**reply, "id": 987_654})),
    "id of an earlier one": earlier_id,
    "id as text": lambda reply: write(line({**reply, "id": str(reply["id"])})),
    "id as fraction": lambda reply: write(line({**reply, "id": float(reply["id"])})),
    "id null": altered(id=None),
    "id missing": altered(id=...),
    "id an object": altered(id={"n": 1}),
    "id twice, right one last": raw(lambda reply: b'{"id":987654,' + line(reply)[1:]),
    "id twice, right one first": raw(lambda reply: line(reply)[:-2] + b',"id":987654}\n'),
    "answered twice": lambda reply: write(line(reply) * 2),
    "answers ahead": lambda reply: write(
        b"".join(line({**reply, "id": reply["id"] + n}) for n in range(1, 50)) + line(reply)
    ),
    "neither result nor error": altered(result=..., error=...),
    "result null": altered(result=None, error=...),
    "result a string": altered(result="done", error=...),
    "result an array": altered(result=[1], error=...),
    "result a number": altered(result=5, error=...),
    "result empty": altered(result={}, error=...),
    "result and error": altered(result={"content": []}, error={"code": -32000, "message": "both"}),
    "error without code": altered(result=..., error={"message": "no code"}),
    "error a string": altered(result=..., error="boom"),
    "error null": altered(result=..., error=None),
    "error an array": altered(result=..., error=[1]),
    "error with a code of text": altered(result=..., error={"code": "E_FAIL", "message": "text"}),
    "error with a huge code": altered(result=..., error={"code": 10**30, "message": "huge"}),
    "error without message": altered(result=..., error={"code": -32000}),
    "error": altered(result=..., error={"code": -32603, "message": "out of order"}),
    "no jsonrpc": altered(jsonrpc=...),
    "jsonrpc 1.0": altered(jsonrpc="1.0"),
    "echoes the request": lambda reply: write(line({"jsonrpc": "2.0", "id": reply["id"], "method": "tools/call"})),
    "closes its input": close(0),
    "closes its input, then answers": close(0, then="answer"),
    "closes its output": close(1),
    "closes both": close(0, 1),
    "closes its error output": close(2, then="answer"),
    "ends with 0": leave(0),
    "ends with 1": leave(1, says="database is locked"),
    "ends with 137": leave(137),
    "ends in half a line": leave(1, after=b'{"jsonrpc":"2.0",'),
    "is killed": die(signal.SIGKILL),
    "crashes": die(signal.SIGSEGV),
    "stops": die(signal.SIGSTOP),
    "floods with notifications": flood("notifications/message", 20_000),
    "floods with changed lists": flood("notifications/tools/list_changed", 5_000),
    "floods with unknown notifications": flood("notifications/unknown", 20_000),
    "floods with requests": flood("sampling/createMessage", 5_000, is_request=True),
    "floods with pings": flood("ping", 2_000, is_request=True),
    "floods with text": before(*[b"log line without end\n" * 1000] * 100),
    "asks what nobody knows": before({"jsonrpc": "2.0", "id": "q", "method": "x/unknown"}),
    "cancels the request": lambda reply: (
        write(line({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": reply["id"]}})),
        write(line(reply)),
    )[0],
    "revision unknown": altered(result={**dict(result_of("initialize")), "protocolVersion": "2031-01-01"}),  # type: ignore
    "revision missing": altered(result={"capabilities": {}}),
    "revision a number": altered(result={**dict(result_of("initialize")), "protocolVersion": 7}),  # type: ignore
    "revision of the other era": altered(result={**dict(result_of("initialize")), "protocolVersion": "2026-07-28"}),  # type: ignore
    "capabilities a list": altered(result={"protocolVersion": "2025-06-18", "capabilities": []}),
    "capabilities missing": altered(result={"protocolVersion": "2025-06-18"}),
    "capabilities null": altered(result={"protocolVersion": "2025-06-18", "capabilities": None}),
    "tools a string": altered(result={"tools": "none"}),
    "tools missing": altered(result={}),
    "cursor without end": altered(result={"tools": [], "nextCursor": "again"}),
    "cursor a number": altered(result={"tools": [], "nextCursor": 5}),
    "content missing": altered(result={"x": 1}),
    "content a string": altered(result={"content": "done"}),
}
"""What may go wrong in place of an answer. Gets the good answer."""


def main() -> None:
    moment, fault, *more = sys.argv[1:]
    is_silent_before = "quiet" in more
    if moment == "start":
        FAULTS[fault]({"jsonrpc": "2.0", "id": 1, "result": {}})
    for text in sys.stdin.buffer:
        message = json.loads(text)
        if "id" not in message or "method" not in message:
            continue
        if is_silent_before and message["method"] == "server/discover":
            continue
        reply = good(message["id"], message["method"])
        if message["method"] == moment:
            FAULTS[fault](reply)
        else:
            write(line(reply))
        answered.append(message["id"])


if __name__ == "__main__":
    main()
