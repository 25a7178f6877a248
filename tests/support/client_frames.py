"""Messages of clients, valid and not, and what is answered to each: the rows of `docs/reference/frames.md`.

Each case is sent over every front by `tests/downstream/test_client_frames.py`. `PYTHONPATH=tests python -m
support.client_frames --write` writes the page anew.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

PAGE = Path(__file__).parents[2] / "docs/reference/frames.md"

PARSE, INVALID, METHOD, PARAMS = -32700, -32600, -32601, -32602

Outcome = int | Literal["served", "nothing"]
"""The code of the error; `served`: it gets a result; `nothing`: it gets no answer."""


@dataclass(frozen=True)
class Case:
    """One message and what becomes of it."""

    what: str
    frame: bytes
    outcome: Outcome
    id: Any = None
    """Of the answer."""
    is_refused_by_http: bool = False
    """It gets no answer, but HTTP has to say that it was not taken: status 400 (MCP, Transports)."""


def ping(id_: bytes = b"7", rest: bytes = b"") -> bytes:
    return b'{"jsonrpc":"2.0","id":' + id_ + b',"method":"ping"' + rest + b"}"


def params(value: bytes) -> bytes:
    return ping(rest=b',"params":' + value)


def within(value: bytes) -> bytes:
    return params(b'{"a":' + value + b"}")


def version(value: bytes) -> bytes:
    return b'{"jsonrpc":' + value + b',"id":7,"method":"ping"}'


def note(value: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","method":"notifications/progress","params":' + value + b"}"


NOT_JSON = {
    "not a number": b"NaN",
    "a negative one": b"-NaN",
    "infinity": b"Infinity",
    "minus infinity": b"-Infinity",
    "a leading zero": b"01",
    "a negative leading zero": b"-01",
    "a bare minus": b"-",
    "a plus sign": b"+1",
    "a point at the end": b"1.",
    "a point at the start": b".5",
    "an exponent without digits": b"1e",
    "hexadecimal": b"0x10",
    "digits with an underscore": b"1_000",
    "True": b"True",
    "undefined": b"undefined",
    "a comment": b"1/*x*/",
    "a trailing comma in an array": b"[1,]",
    "a missing comma": b"[1 2]",
    "a trailing comma in an object": b'{"b":1,}',
    "a name without quotes": b"{b:1}",
    "single quotes": b"'x'",
    "a name without a value": b'{"b"}',
    "a number as a name": b"{1:2}",
    "a raw tab in a string": b'"\t"',
    "a raw NUL in a string": b'"\x00"',
    "a raw control character in a name": b'{"b\x01":1}',
    "an unknown escape": b'"\\x41"',
    "a short unicode escape": b'"\\u12"',
    "an escape that is not hexadecimal": b'"\\u12g4"',
    "one bracket too many": b"[1]]",
    "a vertical tab between tokens": b"\x0b1",
    "a no-break space between tokens": b"\xc2\xa01",
}
NOT_UTF8 = {
    "a wrong byte": b"\xff",
    "a lone continuation byte": b"\x80",
    "an overlong slash": b"\xc0\xaf",
    "an overlong NUL": b"\xe0\x80\x80",
    "half of a surrogate pair in UTF-8": b"\xed\xa0\x80",
    "a code point above U+10FFFF": b"\xf4\x90\x80\x80",
    "a cut character": b"\xe2\x82",
    "Latin-1": b"caf\xe9",
}
VALUES = {
    "a very large exponent": b"1e999",
    "an integer of 400 digits": b"9" * 400,
    "minus zero": b"-0",
    "a DEL character": b'"\x7f"',
    "an escaped NUL": b'"\\u0000"',
    "a surrogate pair": b'"\\ud83d\\ude00"',
    "half of a surrogate pair, escaped": b'"\\ud83d"',
    "a name twice": b'{"b":1,"b":2}',
    "an empty name": b'{"":1}',
    "800 levels": b"[" * 800 + b"]" * 800,
    "U+2028 in a string": b'"\xe2\x80\xa8"',
    "a noncharacter": b'"\xef\xbf\xbf"',
}

CASES: dict[str, list[Case]] = {
    "The text": [
        Case("a request", ping(), "served", 7),
        Case("blanks around it", b" \t" + ping() + b" \r", "served", 7),
        Case("a byte order mark before it", b"\xef\xbb\xbf" + ping(), "served", 7),
        Case("no JSON", b"hello", PARSE),
        Case("a lone brace", b"}", PARSE),
        Case("UTF-16", ping().decode().encode("utf-16"), PARSE),
        Case("single quotes around all", b"{'jsonrpc':'2.0','id':7,'method':'ping'}", PARSE),
        Case("text after the object", ping() + b" x", PARSE, 7),
        Case("a form feed after the object", ping() + b"\x0c", PARSE, 7),
        Case("a semicolon after the object", ping() + b";", PARSE, 7),
        Case("a bracket after the object", ping() + b"}", PARSE, 7),
        Case("two objects", ping() + ping(b"8"), PARSE),
        Case("two objects with a comma", ping() + b"," + ping(b"8"), PARSE),
        Case("a notification and a request", note(b"{}") + ping(), PARSE),
        Case("a trailing comma", ping(rest=b","), PARSE, 7),
        Case("cut in a string", ping(rest=b',"params":{"a":"cut')[:-1], PARSE, 7),
        Case("cut between two members", b'{"jsonrpc":"2.0","id":7,', PARSE, 7),
        Case("an id within the params alone", b'{"jsonrpc":"2.0","method":"ping","params":{"id":7,}}', PARSE),
        Case("an id that is cut", b'{"jsonrpc":"2.0","method":"ping","id":"7', PARSE),
        *(Case(f"{what} in the params", within(value), PARSE, 7) for what, value in NOT_JSON.items()),
        *(Case(f"{what} in the params", within(b'"' + value + b'"'), PARSE, 7) for what, value in NOT_UTF8.items()),
        Case("a method that is not UTF-8", b'{"jsonrpc":"2.0","id":7,"method":"p\xffing"}', PARSE, 7),
        Case("a member's name that is not UTF-8", ping(rest=b',"\xff":1'), PARSE, 7),
        Case("a notification that is not UTF-8", b'{"jsonrpc":"2.0","method":"\xff"}', PARSE),
        *(Case(f"{what} in the params", within(value), "served", 7) for what, value in VALUES.items()),
        Case("100,000 levels", params(b"[" * 100_000 + b"]" * 100_000), INVALID, 7),
        Case("100,000 levels, cut", params(b"[" * 100_000), PARSE, 7),
    ],
    "The kind of value": [
        Case("a number", b"42", INVALID),
        Case("null", b"null", INVALID),
        Case("true", b"true", INVALID),
        Case("a string", b'"ping"', INVALID),
        Case("an empty object", b"{}", INVALID),
        Case("an object of something else", b'{"level":"info","msg":"ready"}', INVALID),
        Case("members that JSON-RPC does not have", ping(rest=b',"extra":{"n":1}'), "served", 7),
        Case("members in another order", b'{"method":"ping","id":7,"jsonrpc":"2.0"}', "served", 7),
        Case("escaped names", b'{"\\u006asonrpc":"2.0","\\u0069d":7,"metho\\u0064":"ping"}', "served", 7),
        Case("names in capitals", b'{"JSONRPC":"2.0","ID":7,"METHOD":"ping"}', INVALID),
        Case("an id twice: the last counts", b'{"jsonrpc":"2.0","id":6,"id":7,"method":"ping"}', "served", 7),
        Case("a method twice: the last counts", b'{"jsonrpc":"2.0","id":7,"method":"x","method":"ping"}', "served", 7),
        Case("a number as method, then one", b'{"jsonrpc":"2.0","id":7,"method":7,"method":"ping"}', "served", 7),
        Case("a method, then a number as one", b'{"jsonrpc":"2.0","id":7,"method":"ping","method":7}', INVALID, 7),
    ],
    "`jsonrpc`": [
        Case("missing", b'{"id":7,"method":"ping"}', INVALID, 7),
        Case('"1.0"', version(b'"1.0"'), INVALID, 7),
        Case('"2"', version(b'"2"'), INVALID, 7),
        Case("a number", version(b"2.0"), INVALID, 7),
        Case("null", version(b"null"), INVALID, 7),
        Case("an array", version(b'["2.0"]'), INVALID, 7),
        Case("blanks in it", version(b'"2.0 "'), INVALID, 7),
        Case("written with escapes", version(b'"\\u0032.0"'), "served", 7),
    ],
    "`id`": [
        Case("a string", ping(b'"a"'), "served", "a"),
        Case("an empty string", ping(b'""'), "served", ""),
        Case("a string of other letters", ping('"ünï"'.encode()), "served", "ünï"),
        Case("an escaped string", ping(b'"\\u0061\\n"'), "served", "a\n"),
        Case("negative", ping(b"-7"), "served", -7),
        Case("zero", ping(b"0"), "served", 0),
        Case("beyond 2^53", ping(b"9007199254740993"), "served", 9007199254740993),
        Case("of 30 digits", ping(b"1" * 30), "served", int("1" * 30)),
        Case("an integer written as a fraction", ping(b"7.0"), "served", 7.0),
        Case("a fraction", ping(b"7.5"), INVALID),
        Case("one that overflows", ping(b"1e999"), INVALID),
        Case("a negative one that overflows", ping(b"-1e999"), INVALID),
        Case("of 400 digits", ping(b"9" * 400), INVALID),
        Case("of 2,000 letters", ping(b'"' + b"x" * 2000 + b'"'), INVALID),
        Case("null", ping(b"null"), INVALID),
        Case("true", ping(b"true"), INVALID),
        Case("an object", ping(b"{}"), INVALID),
        Case("an array", ping(b"[7]"), INVALID),
        Case("with a leading zero", ping(b"01"), PARSE),
        Case("not a number", ping(b"NaN"), PARSE),
        Case("a string that is not UTF-8", ping(b'"\xff"'), PARSE),
        Case("a string with half of a surrogate pair", ping(b'"\\ud800"'), INVALID),
        Case("a string with an unknown escape", ping(b'"\\x"'), PARSE),
    ],
    "`method`": [
        Case("unknown", b'{"jsonrpc":"2.0","id":7,"method":"no/such"}', METHOD, 7),
        Case("with half of a surrogate pair", b'{"jsonrpc":"2.0","id":7,"method":"p\\ud800"}', METHOD, 7),
        Case("missing", b'{"jsonrpc":"2.0","id":7}', INVALID, 7),
        Case("missing, with params", b'{"jsonrpc":"2.0","id":7,"params":{}}', INVALID, 7),
        Case("empty", b'{"jsonrpc":"2.0","id":7,"method":""}', INVALID, 7),
        Case("a number", b'{"jsonrpc":"2.0","id":7,"method":5}', INVALID, 7),
        Case("null", b'{"jsonrpc":"2.0","id":7,"method":null}', INVALID, 7),
        Case("an object", b'{"jsonrpc":"2.0","id":"a","method":{}}', INVALID, "a"),
        Case("a number, and no id", b'{"jsonrpc":"2.0","method":1,"params":"bar"}', INVALID),
        Case("a number, and an id that is none", b'{"jsonrpc":"2.0","id":true,"method":1}', INVALID),
        Case("a number, and broken JSON after it", b'{"jsonrpc":"2.0","id":7,"method":1,"params":NaN}', PARSE, 7),
    ],
    "`params`": [
        Case("missing", ping(), "served", 7),
        Case("an object", params(b"{}"), "served", 7),
        Case("null, which some clients write for none", params(b"null"), "served", 7),
        Case("an array, which no method of MCP takes", params(b"[1]"), PARAMS, 7),
        Case("an empty array", params(b"[]"), PARAMS, 7),
        Case("a string", params(b'"x"'), INVALID, 7),
        Case("a number", params(b"1"), INVALID, 7),
        Case("true", params(b"true"), INVALID, 7),
    ],
    "Notifications": [
        Case("of an unknown method", b'{"jsonrpc":"2.0","method":"no/such","params":{}}', "nothing"),
        Case("that name nothing known", note(b'{"progressToken":1,"progress":"x"}'), "nothing"),
        Case("with an array", note(b"[1]"), "nothing"),
        Case("with a string as params", note(b'"x"'), "nothing", is_refused_by_http=True),
        Case("without a version", b'{"method":"notifications/progress"}', "nothing", is_refused_by_http=True),
        Case("of version 1.0", b'{"jsonrpc":"1.0","method":"no/such"}', "nothing", is_refused_by_http=True),
    ],
    "Answers": [
        Case("a result to nobody", b'{"jsonrpc":"2.0","id":77,"result":{}}', "nothing"),
        Case("an error to nobody", b'{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}', "nothing"),
        Case("an error with a null id", b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}', "nothing"),
        Case("an error without an id", b'{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}', "nothing"),
        Case(
            "a result and an error",
            b'{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"m"}}',
            "nothing",
            is_refused_by_http=True,
        ),
        Case("a result without an id", b'{"jsonrpc":"2.0","result":{}}', "nothing", is_refused_by_http=True),
        Case("a result with a null id", b'{"jsonrpc":"2.0","id":null,"result":{}}', "nothing", is_refused_by_http=True),
        Case("a result without a version", b'{"id":7,"result":{}}', "nothing", is_refused_by_http=True),
        Case(
            "a result with an id that is none",
            b'{"jsonrpc":"2.0","id":[],"result":{}}',
            "nothing",
            is_refused_by_http=True,
        ),
        Case("a request with a result", ping(rest=b',"result":{}'), "served", 7),
    ],
    "Batches, in a revision that has none": [
        Case("of a request", b"[" + ping() + b"]", INVALID),
        Case("empty", b"[]", INVALID),
        Case("of notifications", b"[" + note(b"{}") + b"]", INVALID),
        Case("broken", b"[" + ping() + b",", PARSE),
        Case("no message", b"[1,2]", INVALID),
    ],
}

BATCHES: dict[str, tuple[bytes, Sequence[tuple[Any, Outcome]] | int | None]] = {
    "of two requests": (b"[" + ping() + b"," + ping(b'"b"') + b"]", [(7, "served"), ("b", "served")]),
    "with a notification": (b"[" + note(b"{}") + b"," + ping() + b"]", [(7, "served")]),
    "of notifications alone": (b"[" + note(b"{}") + b"," + note(b"{}") + b"]", None),
    "with a malformed notification": (b"[" + note(b'"x"') + b"," + ping() + b"]", [(7, "served")]),
    "with an answer": (b'[{"jsonrpc":"2.0","id":77,"result":{}},' + ping() + b"]", [(7, "served")]),
    "with a member that is no object": (b"[1," + ping() + b"]", [(None, INVALID), (7, "served")]),
    "of members that are no objects": (b"[1,2,3]", [(None, INVALID)] * 3),
    "with a batch in it": (b"[" + ping() + b",[" + ping(b"8") + b"]]", [(7, "served"), (None, INVALID)]),
    "with a wrong version": (b"[" + version(b'"1.0"') + b"," + ping(b"8") + b"]", [(7, INVALID), (8, "served")]),
    "with a method that is no string": (
        b'[{"jsonrpc":"2.0","id":3,"method":5},' + ping() + b"]",
        [(3, INVALID), (7, "served")],
    ),
    "with an id that is none": (b"[" + ping(b"null") + b"," + ping() + b"]", [(None, INVALID), (7, "served")]),
    "with an unknown method": (
        b'[{"jsonrpc":"2.0","id":3,"method":"no/such"},' + ping() + b"]",
        [(3, METHOD), (7, "served")],
    ),
    "empty": (b"[]", INVALID),
    "broken": (b"[" + ping() + b"," + ping(b"8"), PARSE),
    "with a value that is not JSON": (b"[" + ping() + b"," + within(b"NaN") + b"]", PARSE),
    "that is not UTF-8": (b"[" + ping() + b"," + ping(b'"\xff"') + b"]", PARSE),
}
"""In revision 2025-03-26. The answers by id; a code: one error for all; None: no answer."""

_HEAD = """# Messages of clients

What becomes of a message that a client sends, over stdio, streamable HTTP, HTTP+SSE and WebSocket. JSON is RFC 8259 in
UTF-8, the envelope is JSON-RPC 2.0, and an id is a string or an integer (MCP, Base Protocol). The client is served on
after every one of them.

This page is written from the cases of `tests/downstream/test_client_frames.py`, which sends each over every front; the
rules are in `src/mcpbridge/protocol/reading/client_messages.py`.

- −32700: the text is no JSON, or no UTF-8. −32600: it is JSON, but no message. −32601: nobody has the method.
  −32602: the params are wrong.
- The **id** of an answer is that of the message where it is legible; otherwise it is null. Only an id of the message
  itself counts, never one within its params. Over HTTP, where an answer finds its request by itself, the id of a
  message that is no JSON is null.
- A notification and an answer are never answered. Over streamable HTTP and HTTP+SSE, one that is not valid gets status
  400 all the same.
- Over WebSocket, text that is not UTF-8 ends the connection with code 1007 (RFC 6455, section 8.1).
- Over stdio a message is one line. A line that ends between two tokens is waited for: pretty-printed JSON is put
  together if the rest comes within a second. Empty lines are skipped.
- A message over `limits.max_frame` (over HTTP: `http.max_body`) gets −32600, with its id if that is near its start or
  end.
"""


def page() -> str:
    """The page as it has to be."""
    parts = [_HEAD]
    for group, cases in CASES.items():
        rows = "\n".join(f"| {_cell(case.what)} | {_words(case.outcome)} | {_id(case)} |" for case in cases)
        parts.append(f"## {group}\n\n| what arrives | answer | id |\n|---|---|---|\n{rows}\n")
    rows = "\n".join(f"| {what} | {_of_batch(answers)} |" for what, (_, answers) in BATCHES.items())
    parts.append(f"## Batches, in revision 2025-03-26\n\n| what arrives | answers |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _words(outcome: Outcome) -> str:
    if isinstance(outcome, int):
        return f"−{-outcome}"
    return {"served": "a result", "nothing": "none"}[outcome]


def _id(case: Case) -> str:
    if case.outcome == "nothing":
        return "400 over HTTP" if case.is_refused_by_http else ""
    return "null" if case.id is None else "its own"


def _of_batch(answers: Sequence[tuple[Any, Outcome]] | int | None) -> str:
    if answers is None:
        return "none"
    if isinstance(answers, int):
        return f"one error, {_words(answers)}, with a null id"
    return ", ".join(_words(outcome) for _, outcome in answers)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), "utf-8")
    else:
        print(page())
