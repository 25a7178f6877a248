"""What becomes of a call when its stdio server does one thing wrong: the cases, and the page that they make.

Each case is tried with a real process (`test_hostile_servers.py`), and
`docs/reference/upstream-faults.md` is made of this table.
"""

from dataclasses import dataclass

SERVED = "the call is served"
AT_ONCE = "at once"
MOMENT = "1 s"
HALF = "0.5 s"
DEADLINE = "`call_timeout`"
START = "`init_timeout`"


@dataclass(frozen=True)
class Case:
    """`outcome` is a text of the error, or SERVED; `within` says what bounds the time."""

    moment: str
    fault: str
    outcome: str
    within: str = AT_ONCE

    @property
    def id(self) -> str:
        return f"{self.moment}: {self.fault}"


def _served(moment: str, *faults: str) -> list[Case]:
    return [Case(moment, fault, SERVED) for fault in faults]


_HARMLESS = (
    *("slow", "drips", "half a line and the rest", "text before", "JSON that is no message before", "binary before"),
    *("NUL bytes before", "byte order mark", "CRLF", "many lines", "batch", "empty batch before", "blank lines before"),
    *("two on a line", "id as text", "id as fraction", "id null", "id missing", "id twice, right one last"),
    *("answered twice", "answers ahead", "no jsonrpc", "jsonrpc 1.0", "closes its error output"),
    *("floods with text", "floods with pings", "asks what nobody knows", "cancels the request"),
)
_LOST = "its answer cannot be read"
_NO_REQUEST = "which no request has that waits"
_NO_OBJECT = "a result that is no object"
_NOTHING = "neither a result nor an error"
_UNREADABLE = "an unreadable error"
_LATE = "no answer within"
_REVISION = "it wants protocol revision"
_INPUT = "it closed its standard input"
_OUTPUT = "it closed its standard output"

CASES = [
    *_served("tools/call", *_HARMLESS, "floods with notifications", "floods with requests"),
    *(
        Case("tools/call", fault, _LOST)
        for fault in ("half a line, ended", "cut off", "too large", "too large, id last")
    ),
    *(Case("tools/call", fault, _LOST) for fault in ("nested", "ends in half a line")),
    *(Case("tools/call", fault, _NO_REQUEST, MOMENT) for fault in ("id of another", "id of an earlier one")),
    *(Case("tools/call", fault, _NO_REQUEST, MOMENT) for fault in ("id an object", "id twice, right one first")),
    *(Case("tools/call", fault, _NOTHING) for fault in ("neither result nor error", "result null", "error null")),
    *(Case("tools/call", fault, _NO_OBJECT) for fault in ("result a string", "result an array", "result a number")),
    *(Case("tools/call", fault, _UNREADABLE) for fault in ("error without code", "error a string", "error an array")),
    Case("tools/call", "error with a code of text", _UNREADABLE),
    Case("tools/call", "error without message", "it gave no reason"),
    Case("tools/call", "error with a huge code", "huge"),
    Case("tools/call", "error", "out of order"),
    Case("tools/call", "result and error", "both"),
    Case("tools/call", "closes its input", _INPUT, HALF),
    Case("tools/call", "closes its output", _OUTPUT, HALF),
    Case("tools/call", "closes both", "it closed its standard", HALF),
    Case("tools/call", "ends with 0", "exit code 0"),
    Case("tools/call", "ends with 1", "exit code 1: database is locked"),
    Case("tools/call", "ends with 137", "exit code 137"),
    Case("tools/call", "is killed", "killed by SIGKILL"),
    Case("tools/call", "crashes", "killed by SIGSEGV"),
    *(
        Case("tools/call", fault, "no answer within", DEADLINE)
        for fault in ("silent", "half a line", "no JSON", "text")
    ),
    *(Case("tools/call", fault, "no answer within", DEADLINE) for fault in ("binary", "UTF-16", "stops")),
    Case("tools/call", "echoes the request", "no answer within", DEADLINE),
    *_served("initialize", *_HARMLESS, "floods with notifications", "capabilities missing", "capabilities null"),
    *(Case("initialize", fault, _LOST) for fault in ("half a line, ended", "cut off", "too large", "nested")),
    *(Case("initialize", fault, _NO_REQUEST, MOMENT) for fault in ("id of another", "id of an earlier one")),
    *(Case("initialize", fault, _NO_OBJECT) for fault in ("result a string", "result an array", "result a number")),
    *(Case("initialize", fault, _NOTHING) for fault in ("neither result nor error", "result null", "error null")),
    *(Case("initialize", fault, "is not valid") for fault in ("revision missing", "revision a number")),
    Case("initialize", "capabilities a list", "is not valid"),
    *(
        Case("initialize", fault, "it wants protocol revision")
        for fault in ("revision unknown", "revision of the other era")
    ),
    Case("initialize", "error", "it refused to begin: out of order (-32603)"),
    Case("initialize", "error a string", "an error that cannot be read"),
    Case("initialize", "closes its input", _INPUT, HALF),
    Case("initialize", "closes its output", _OUTPUT, HALF),
    Case("initialize", "closes both", "it closed its standard", HALF),
    Case("initialize", "ends with 0", "ended without answering `initialize` (exit code 0)"),
    Case("initialize", "ends with 1", "exit code 1: database is locked"),
    Case("initialize", "is killed", "killed by SIGKILL"),
    *(Case("initialize", fault, "not ready within", START) for fault in ("silent", "half a line", "text", "stops")),
    Case("tools/list", "ends with 1", "exit code 1: database is locked"),
    Case("tools/list", "error", "out of order"),
    Case("tools/list", "tools a string", "its answer has the wrong shape"),
    Case("tools/list", "tools missing", "its answer has the wrong shape"),
    Case("tools/list", "cut off", _LOST),
    Case("tools/list", "too large", _LOST),
    Case("tools/list", "id of another", _NO_REQUEST, MOMENT),
    Case("tools/list", "result null", _NOTHING),
    *_served("server/discover", "error a string", "result null", "cut off", "result a string", "ends with 1"),
    *_served("server/discover", "id of another", "text before", "too large", "is killed", "result empty"),
    Case("server/discover", "silent", "not ready within", START),
]
"""In the order of the page."""
