"""The text of `docs/reference/upstream-faults.md`, made of the cases that the tests try."""

from faults.hostile_cases import CASES, SERVED, Case
from faults.hostile_http_cases import CONNECT_CASES, HTTP_CASES, SSE_CASES, WS_CASES, WebCase

_HEAD = """# What a faulty server does to a call

This page is made of the cases that the tests try, each with a real server (`tests/faults`): a process on stdio, or a
server on a socket. A healthy server beside it is called meanwhile and answers; its tools are listed. `call_timeout` and
`init_timeout` are settings of the server. A server that fails at its start is started again, after longer and longer
waits; with a `Retry-After`, not before that.

## stdio

| At | The server | What its caller gets | Within |
|---|---|---|---|
"""

_WEB = """
In the tables that follow, *Arrives* is how often the call comes to the server. It comes more than once only where the
server has said that it did not run it: a redirect within the server, a session that it does not know any more (404).
Where the connection broke, or the answer cannot be read, nobody knows whether the call ran, and it is not sent again.
*Status* is what `mcpbridge status` shows of the server then. In every case the servers' own words come without the
secrets that the bridge knows, and once the server is well, calls to it are served again.
"""

_COLUMNS = """
| At | The server | What its caller gets | Within | Arrives | Status |
|---|---|---|---|---|---|
"""

_HTTP_NOTES = """
`all` is every request, `GET` the session's own stream, `DELETE` its end, `connect` before anything is said. An address
without `transport` is tried with HTTP+SSE too where `initialize` is refused with 400, 404 or 405.
"""


def page() -> str:
    """The text of the page."""
    return "".join(
        (
            _HEAD,
            *(_row(case) for case in CASES),
            _WEB,
            "\n## Streamable HTTP\n",
            _HTTP_NOTES,
            _COLUMNS,
            *(_web_row(case) for case in (*HTTP_CASES, *CONNECT_CASES)),
            "\n## HTTP+SSE\n\n`GET` is the stream on which all answers come.\n",
            _COLUMNS,
            *(_web_row(case) for case in SSE_CASES),
            "\n## WebSocket\n",
            _COLUMNS,
            *(_web_row(case) for case in WS_CASES),
        )
    )


def _row(case: Case) -> str:
    return f"| `{case.moment}` | {case.fault} | {_outcome(case)} | {case.within} |\n"


def _web_row(case: WebCase) -> str:
    arrivals = {0: "no", 1: "once", 2: "twice"}.get(case.arrivals, f"{case.arrivals} times")
    error = f"`{case.error}`: {_outcome(case).removeprefix('error: ')}" if case.error else _outcome(case)
    return f"| `{case.moment}` | {case.fault} | {error} | {case.within} | {arrivals} | {case.status} |\n"


def _outcome(case: Case) -> str:
    return case.outcome if case.outcome == SERVED else f"error: … {case.outcome} …"
