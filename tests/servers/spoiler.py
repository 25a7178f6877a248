"""A server whose tool `spoil` answers in every way that an answer can be wrong; argument `how` says which."""

import json
import os
import signal
import sys
from typing import Any

from plain import Result, Server, text, tool

LONG = 40_000_000
"""Bytes of text in the longest answer."""


def good(id_: object, words: str = "readable") -> str:
    """The answer as it should be."""
    return json.dumps({"jsonrpc": "2.0", "id": id_, "result": text(words)})


def with_result(id_: object, result: str) -> str:
    """An answer whose result is any text."""
    return f'{{"jsonrpc":"2.0","id":{json.dumps(id_)},"result":{result}}}'


def with_error(id_: object, error: str) -> str:
    """An answer whose error is any text."""
    return f'{{"jsonrpc":"2.0","id":{json.dumps(id_)},"error":{error}}}'


def in_content(extra: str) -> str:
    """A good result with one more member, any text."""
    return f'{{"content":[{{"type":"text","text":"readable"}}],"extra":{extra}}}'


def spoiled(how: str, id_: Any) -> str | bytes | None:
    """The lines to send, without the last line end; None for nothing."""
    match how:
        # What an indulgent reader can still make out: the call should succeed.
        case "bom":
            return b"\xef\xbb\xbf" + good(id_).encode()
        case "pretty printed":
            return json.dumps(json.loads(good(id_)), indent=2)
        case "two on a line":
            return '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}' + good(id_)
        case "batch":
            return "[" + good(id_) + "]"
        case "carriage returns":
            return "\r\n" + good(id_) + "\r"
        case "no version":
            return f'{{"id":{json.dumps(id_)},"result":{in_content("1")}}}'
        case "noise before":
            noise = ["Server is ready", "", "\x1b[32mok\x1b[0m", "null", "42", '"text"', "[]", "{}", "[1, 2", "}{", "{"]
            return "\n".join([*noise, good(id_)])
        case "logs as json":
            # Loggers that write JSON number their lines too.
            logs = [{"level": "info", "id": id_, "msg": "working"}, {"id": id_}, {"time": 1, "pid": 2, "name": "x"}]
            return "\n".join([*map(json.dumps, logs), good(id_)])
        case "wrong id first":
            return good(int(id_) + 100_000, "for someone else") + "\n" + good(id_)
        case "answers twice":
            return good(id_) + "\n" + good(id_, "again")
        case "20,000 digits":
            return with_result(id_, in_content("7" * 20_000))
        case "unknown content":
            return with_result(id_, '{"content":[{"type":"hologram","x":1},{"type":"text","text":"readable"}]}')
        case "long":
            return good(id_, "x" * LONG)
        # What may be mended or given up, but at once.
        case "bad utf-8":
            return good(id_).encode().replace(b"readable", b"read\xff\xfeable")
        case "latin-1":
            return json.dumps({"jsonrpc": "2.0", "id": id_, "result": text("caf\u00e9")}, ensure_ascii=False).encode(
                "latin-1"
            )
        case "lone surrogate":
            return good(id_).replace("readable", "read\\ud83dable")
        case "encoded surrogate":
            return good(id_).encode().replace(b"readable", b"read\xed\xa0\xbdable")
        case "duplicate id":
            return good(id_).replace('"id"', '"id": 987654, "id"', 1)
        case "duplicate id, ours first":
            return good(id_).replace('"result"', '"id": 987654, "result"', 1)
        case "nan":
            return with_result(id_, in_content("NaN"))
        case "raw newline in a string":
            return good(id_).replace("readable", "read\nable")
        case "control character":
            return good(id_).replace("readable", "read\x00able")
        # What no reader can make a result of.
        case "malformed":
            return with_result(id_, '{"content": [oops]}')
        case "truncated":
            return good(id_)[:-12]
        case "id at the end":
            return '{"jsonrpc":"2.0","result":{"content":[oops]},"id":' + json.dumps(id_) + "}"
        case "null result":
            return with_result(id_, "null")
        case "number result":
            return with_result(id_, "42")
        case "no result":
            return f'{{"jsonrpc":"2.0","id":{json.dumps(id_)}}}'
        case "error is a text":
            return with_error(id_, '"boom"')
        case "error is null":
            return with_error(id_, "null")
        case "error code is a text":
            return with_error(id_, '{"code":"E_BOOM","message":"boom"}')
        case "error without message":
            return with_error(id_, '{"code":-32000}')
        case "result and error":
            return with_result(id_, in_content("1"))[:-1] + ',"error":{"code":-32000,"message":"boom"}}'
        case "100,000 levels":
            return with_result(id_, '{"content":' + "[" * 100_000 + "]" * 100_000 + "}")
        case "100,000 open":
            return with_result(id_, '{"content":' + "[" * 100_000)
        # What gives no hint whose answer it is.
        case "wrong id":
            return good(int(id_) + 100_000)
        case "text id":
            return good(str(id_))
        case "null id":
            return good(None)
        case "silence":
            return None
        case _:
            raise ValueError(how)


class Spoiler(Server):
    """`spoil`, and tools that end the process in mid-call."""

    def __init__(self) -> None:
        super().__init__()
        self.tools += [tool("spoil", how="string"), tool("oversized", size="integer"), tool("leave", how="string")]

    def tool_spoil(self, id_: object, arguments: dict[str, Any]) -> None:
        if arguments["how"] == "bad utf-8 in a log":
            self.write(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"\xff"}}\n')
            self.write(good(id_).encode() + b"\n")
            return
        line = spoiled(arguments["how"], id_)
        if line is not None:
            self.write((line if isinstance(line, bytes) else line.encode()) + b"\n")

    def tool_oversized(self, id_: object, arguments: dict[str, Any]) -> None:
        """An answer of `size` bytes, its id before or after them."""
        filler = "x" * arguments["size"]
        if arguments.get("id_last"):
            self.write(f'{{"jsonrpc":"2.0","result":{json.dumps(text(filler))},"id":{json.dumps(id_)}}}\n'.encode())
        else:
            self.write(good(id_, filler).encode() + b"\n")

    def tool_leave(self, _id: object, arguments: dict[str, Any]) -> Result | None:
        """The end of the process, or of its output, before the answer."""
        print("about to leave", file=sys.stderr)
        print("disk full: cannot go on", file=sys.stderr, flush=True)
        match arguments["how"]:
            case "exit":
                os._exit(3)
            case "signal":
                os.kill(os.getpid(), signal.SIGKILL)
            case "half a line":
                self.write(b'{"jsonrpc":"2.0","id":')
                os._exit(3)
            case "close output":
                os.close(1)
                signal.pause()


if __name__ == "__main__":
    Spoiler().run()
