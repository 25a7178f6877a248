"""The console in a terminal: servers, live calls and approvals of the bridge that runs, by Textual.

It asks the bridge over its control socket, as `mcpbridge status` and `approve` do, twice a second. Needs the extra
`top`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, cast

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Footer, Header, Label, Static

from mcpbridge.app.console.shown_text import inert_text, shown_count, shown_seconds

Ask = Callable[..., Mapping[str, Any]]
"""Asks the bridge one thing, by `do`, and waits for the answer; called in a thread."""

_EVERY = 0.5
"""Seconds between two looks."""
_LINE = 120
"""Characters of one cell."""
_OUTCOMES = {"ok": "green", "cancelled": "dim", "asked": "blue", "needed_sign_in": "blue"}
_COLOURS = {"ready": "green", "idle": "green", "starting": "blue", "disabled": "dim"}


class Top(App[None]):
    """Servers, calls and approvals, live."""

    TITLE = "mcpbridge"
    CSS = """
    DataTable { height: auto; max-height: 40%; }
    Label { padding: 1 1 0 1; text-style: bold; }
    #trouble { color: red; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("y", "decide('approve')", "Approve"),
        ("n", "decide('deny')", "Deny"),
        ("s", "decide('session')", "Approve for the session"),
        ("q", "quit", "Quit"),
    ]

    def __init__(self, ask: Ask, *, by: str = "top") -> None:
        """`by`: who answers approvals, as the log says it."""
        super().__init__()
        self._ask, self._by = ask, by
        self._approvals: list[Mapping[str, Any]] = []

    def compose(self) -> ComposeResult:
        """Three tables, one below the other."""
        yield Header(show_clock=True)
        with Vertical():
            yield Static(id="trouble")
            yield Label("Approvals that wait")
            yield DataTable[Text](id="approvals", cursor_type="row")
            yield Label("Servers")
            yield DataTable[Text](id="servers", cursor_type="none")
            yield Label("Calls: those under way, then the last ones")
            yield DataTable[Text](id="calls", cursor_type="none")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self._table("approvals").add_columns("Tool", "Arguments", "Why", "Client")
        self._table("servers").add_columns("Server", "State", "Calls", "Failed", "p50", "p95", "Restarts", "Running")
        self._table("calls").add_columns("Time", "Call", "Outcome", "Client", "Took", "Tokens", "Noted")
        self._table("approvals").focus()
        self.set_interval(_EVERY, self.look)
        self.look()

    @work(thread=True, exclusive=True, group="look")
    def look(self) -> None:
        """Ask the bridge, beside the screen."""
        answers = [self._ask(do) for do in ("status", "approvals", "calls")]
        self.call_from_thread(self._show, *answers)

    def _show(self, status: Mapping[str, Any], approvals: Mapping[str, Any], calls: Mapping[str, Any]) -> None:
        if not self.query("#trouble"):
            return  # it ends, and the screen is gone already
        trouble = str(status.get("error") or "")
        self.query_one("#trouble", Static).update(
            Text(f"The bridge does not answer ({inert_text(trouble, _LINE)}). Trying again." if trouble else "")
        )
        if trouble:
            return
        self.sub_title = inert_text(str(status.get("config") or ""), _LINE)
        self._approvals = list(cast("Sequence[Mapping[str, Any]]", approvals.get("approvals", [])))
        self._fill("approvals", [_approval(one) for one in self._approvals])
        self._fill("servers", [_server(one) for one in status.get("servers", [])])
        now = time.time()
        running = [_running(one, now) for one in calls.get("running", [])]
        self._fill("calls", [*running, *(_ended(one) for one in calls.get("ended", []))])

    def action_decide(self, decision: str) -> None:
        """Answer the approval under the cursor."""
        at = self._table("approvals").cursor_row
        if 0 <= at < len(self._approvals):
            self._decide(str(self._approvals[at]["id"]), decision)

    @work(thread=True, group="decide")
    def _decide(self, id_: str, decision: str) -> None:
        said = {"decision": "deny" if decision == "deny" else "approve"}
        scope = {"for": "session"} if decision == "session" else {}
        answer = self._ask("decide", id=id_, by=self._by, **said, **scope)
        text = str(answer.get("error") or f"{answer.get('decision')}: {answer.get('tool')}")
        self.call_from_thread(self.notify, inert_text(text, _LINE), markup=False)
        self.call_from_thread(self.look)

    def _table(self, name: str) -> DataTable[Text]:
        return cast("DataTable[Text]", self.query_one(f"#{name}", DataTable))

    def _fill(self, name: str, rows: Sequence[Sequence[Text]]) -> None:
        """Put these rows into a table; the cursor stays where it was."""
        table = self._table(name)
        at = table.cursor_row
        table.clear()
        for row in rows:
            table.add_row(*row)
        if rows:
            table.move_cursor(row=min(max(at, 0), len(rows) - 1))


def _cell(value: object, style: str = "") -> Text:
    """What anybody said, as text without markup and without what moves the cursor."""
    return Text(inert_text(str(value), _LINE).replace("\n", " "), style=style)


def _approval(one: Mapping[str, Any]) -> list[Text]:
    return [_cell(one["tool"]), _cell(one["arguments_line"]), _cell(one["reason"]), _cell(one["client"])]


def _server(one: Mapping[str, Any]) -> list[Text]:
    latency: Mapping[str, Any] = one.get("latency") or {}
    state = str(one.get("state"))
    reason = str(one.get("reason") or "")
    said = state if state in _COLOURS else reason if reason.startswith(state) else f"{state}: {reason}"
    return [
        _cell(one["name"]),
        _cell(said, _COLOURS.get(state, "red")),
        _cell(shown_count(one.get("calls", 0))),
        _cell(shown_count(one.get("errors", 0))),
        _cell(shown_seconds(latency.get("p50"))),
        _cell(shown_seconds(latency.get("p95"))),
        _cell(one.get("restarts", 0)),
        _cell(one.get("running", 0)),
    ]


def _running(one: Mapping[str, Any], now: float) -> list[Text]:
    stage = str(one.get("stage") or "")
    return [
        _cell(_clock(datetime.fromtimestamp(one["since"]).astimezone())),
        _cell(one["tool"] or one["method"]),
        _cell("waits for approval" if stage == "approval" else "running", "blue"),
        _cell(one["client"]),
        _cell(shown_seconds(max(0.0, now - one["since"]))),
        _cell(""),
        _cell(stage),
    ]


def _ended(one: Mapping[str, Any]) -> list[Text]:
    outcome, error = str(one["outcome"]), str(one.get("error") or "")
    facts: Mapping[str, Any] = one.get("facts") or {}
    result: Mapping[str, Any] = one.get("result") or {}
    return [
        _cell(_clock(datetime.fromisoformat(one["at"]).astimezone())),
        _cell(one["tool"] or one["method"]),
        _cell(outcome.replace("_", " "), _OUTCOMES.get(outcome, "red")),
        _cell(one.get("client", "")),
        _cell(shown_seconds(one.get("seconds"))),
        _cell(shown_count(result.get("tokens"))),
        _cell(facts.get("message") or (error if error != outcome else "")),
    ]


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S}" if at.date() == datetime.now().astimezone().date() else f"{at:%Y-%m-%d %H:%M:%S}"
