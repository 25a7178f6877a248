"""The console of any bridge of a fleet shows the calls of all of them (issue 24)."""

import csv
import json
import re
import signal
from collections.abc import Generator
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fleet.test_fleet_call_log import call, name_of
from fleet.test_fleet_figures import ADMIN, MORE
from fleet.test_fleet_sessions import SERVERS
from mcpbridge.app.admin.control_client import ask
from support.fleet_clients import HEADERS, Client, message
from support.redis_server import Server
from support.replicas import Fleet, Replica, fleet, needs_fleet, until

pytestmark = needs_fleet


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Fleet]:
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=2, servers=SERVERS, more=MORE) as found:
            yield found
    finally:
        redis.kill()


class Visitor:
    """A browser that is signed in to the console of one bridge."""

    def __init__(self, replica: Replica, http: httpx2.Client) -> None:
        self.root, self._http = replica.root, http
        answer = http.post(f"{self.root}/console/enter", data={"token": ADMIN}, headers={"origin": self.root})
        assert answer.status_code == 303, answer.text

    def get(self, path: str, status: int = 200, *, may_lack: bool = False) -> str:
        """A page, of all bridges: one that has no time for the question is named on it, and is asked again.

        `may_lack`: the page is taken as it comes.
        """
        pages = list[str]()

        def is_whole() -> bool:
            answer = self._http.get(f"{self.root}/console/{path}")
            assert answer.status_code == status, (answer.status_code, answer.text)
            pages.append(answer.text)
            return may_lack or " does not answer, so " not in answer.text

        until(is_whole, "all bridges answer")
        return pages[-1]

    def texts(self, page: str) -> list[tuple[str, str]]:
        """Bridge and argument of each call of a page of the list, by the pages of the calls."""
        rows = re.findall(r"<td>(r\d)</td>\s*<td class=\"name\">.*?href=\"/console/(calls/\w+)\"", page, re.DOTALL)
        return [(bridge, self.argument(path)) for bridge, path in rows]

    def argument(self, path: str) -> str:
        """Empty: there is none now, since its bridge had no time, or is writing the call down."""
        page = self._http.get(f"{self.root}/console/{path}").text
        found = re.search(r"&#34;text&#34;: &#34;([^&]*)&#34;", page)
        return found[1] if found else ""


@pytest.fixture
def http() -> Generator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=60) as found:
        yield found


def older(page: str) -> str:
    """Where the next page is; empty: this is the last one."""
    found = re.search(r'href="/console/([^"]*)" rel="next"', page)
    return unescape(found[1]) if found else ""


def test_the_list_and_a_call_are_of_all_bridges(pair: Fleet, http: httpx2.Client) -> None:
    first, second = pair.replicas
    echo = name_of(first, "echo")
    visitor = Visitor(first, http)
    for replica, text in ((first, "one"), (second, "two"), (first, "three")):
        call(replica, echo, text)
    expected = [("r1", "three"), ("r2", "two"), ("r1", "one")]
    until(lambda: visitor.texts(visitor.get("calls")) == expected, "all are listed")
    listed, of_second = visitor.get("calls"), visitor.get("calls?at_bridge=r2")
    assert "3 calls" in listed
    assert visitor.texts(of_second) == [("r2", "two")]
    assert "1 call<" in of_second
    assert "there is no bridge" in unescape(visitor.get("calls?at_bridge=r9"))
    shown = visitor.get(re.findall(r"href=\"/console/(calls/\w{16})\"", of_second)[0])
    assert "<dt>Bridge</dt><dd>r2</dd>" in shown
    [uid] = set(re.findall(r"/console/calls/(\w{16})/log", shown))
    assert "at the bridge r2" in visitor.get(f"calls/{uid}/log")
    visitor.get("calls/0123456789abcdef", 404)
    until(lambda: len(json.loads(visitor.get("calls/export.json"))) >= len(expected), "all bridges answer")
    exported = json.loads(visitor.get("calls/export.json"))
    assert [(row["bridge"], json.loads(row["arguments"]["content"])["text"]) for row in exported] == expected

    table = list(csv.DictReader(visitor.get("calls/export.csv").splitlines()))
    assert [row["bridge"] for row in table] == ["r1", "r2", "r1"]

    after = re.findall(r"calls/list\?after=([\w-]+)", listed)[0]
    visitor.get(f"calls/list?after={after}", 204)
    call(second, echo, "four")
    news = f"{visitor.root}/console/calls/list?after={after}"
    until(lambda: ">r2<" in http.get(news).text, "a call of another bridge is news")  # 204, without a text, until then


def test_pages_follow_one_another_with_a_place_in_each_file(pair: Fleet, http: httpx2.Client) -> None:
    first, second = pair.replicas
    echo = name_of(first, "echo")
    visitor = Visitor(second, http)
    for number in range(130):
        call(pair.replicas[number % 3 % 2], echo, str(number))
    until(lambda: "130 calls" in visitor.get("calls"), "all are recorded")
    path, shown = "calls", list[tuple[str, str]]()
    while path:
        page = visitor.get(path)
        shown += visitor.texts(page)
        path = older(page)
        if len(shown) == 50:
            call(first, echo, "later")  # what comes meanwhile does not move what is on the next pages
            until(lambda: "131 calls" in visitor.get("calls"), "it is recorded")
    assert shown == [(f"r{number % 3 % 2 + 1}", str(number)) for number in reversed(range(130))]
    visitor.get("calls?before=nonsense")


def test_what_runs_elsewhere_is_shown_and_announced(pair: Fleet, http: httpx2.Client) -> None:
    first, second = pair.replicas
    play = name_of(second, "play")
    visitor = Visitor(first, http)
    client = Client(http).begin(second)
    steps = [
        {
            "send": {
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {"progressToken": "$token", "progress": 1},
            }
        }
    ]
    asked = message(
        "tools/call", 7, name=play, arguments={"steps": [*steps, {"await": ["never"]}]}, _meta={"progressToken": "mine"}
    )
    with http.stream("GET", f"{first.root}/console/events") as events:
        lines = events.iter_lines()
        next(line for line in lines if line.startswith("data"))
        headers = {**HEADERS, "mcp-session-id": client.session}
        with http.stream("POST", second.url, json=asked, headers=headers) as answer:
            assert next(line for line in answer.iter_lines() if "progress" in line)
            next(line for line in lines if '"running"' in line)
            ids = list[str]()

            def is_shown() -> bool:
                page = visitor.get("calls/running")
                ids[:] = re.findall(r'id="call-(\w{16})"', page)
                return "at r2</small>" in page

            until(is_shown, "it is shown where it runs")
            [uid] = ids
            assert "<dt>Bridge</dt><dd>r2</dd>" in visitor.get(f"calls/{uid}")
            assert "at r2" not in visitor.get("calls/running?at_bridge=r1")
        until(lambda: "at r2</small>" not in visitor.get("calls/running"), "its client has left")


def test_sessions_and_events_are_of_all_bridges(pair: Fleet, http: httpx2.Client) -> None:
    first, second = pair.replicas
    visitor, client = Visitor(first, http), Client(http).begin(second)
    echo = name_of(second, "echo")
    client.post(second, message("tools/call", 2, name=echo, arguments={"text": "in a session"}))

    def session() -> str:
        """The page of the session of `client`, which calls itself raw."""
        rows = [row for row in visitor.get("sessions").split("<tr>") if "<td>r2</td>" in row and "raw <small>" in row]
        return re.findall(r'href="/console/sessions/([^"]+)"', rows[0])[0] if rows else ""

    until(lambda: session() != "", "the session at the other bridge is listed")
    address = f"sessions/{session()}"
    until(lambda: visitor.texts(visitor.get(address)) == [("r2", "in a session")], "its calls are shown")
    assert "<dt>Calls, of which failed</dt><dd>1, 0</dd>" in visitor.get(address)
    for bridge in ("r1", "r2"):
        until(lambda at=bridge: f"<td>{at}</td>" in visitor.get("timeline"), f"events of {bridge} are in the timeline")
    visitor.get("sessions/unknown", 404)


def test_the_overview_and_the_usage_are_of_all_bridges(pair: Fleet, http: httpx2.Client) -> None:
    first, second = pair.replicas
    visitor = Visitor(first, http)
    for replica, times in ((first, 2), (second, 3)):
        for _ in range(times):
            call(replica, name_of(replica, "echo"), "hello")

    def bridges(path: str = "parts/overview", *, may_lack: bool = False) -> dict[str, list[str]]:
        """The cells of the table of bridges, by the first."""
        table = (
            visitor.get(path, may_lack=may_lack)
            .partition('aria-label="Bridges of the fleet"')[2]
            .partition("</table>")[0]
        )
        rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in table.split("<tr>")[2:]]
        cells = [[" ".join(re.sub("<[^>]*>", " ", cell).split()) for cell in row] for row in rows]
        return {row[0]: row[1:] for row in cells}

    def calls() -> list[int]:
        return [int(row[3]) for row in bridges().values()]

    until(lambda: calls() == [2, 3, 5], "all calls are summed up")
    found = bridges("")
    assert list(found) == ["r1 this one", "r2", "together"]
    assert [row[0] for row in found.values()] == ["serves", "serves", ""]
    assert found["r1 this one"][6] == found["r2"][6] != ""  # the version
    until(lambda: all(row[2] != "–" for row in bridges().values()), "there are rates once somebody has looked twice")
    card = visitor.get("parts/overview").partition('<article class="card"')[2]
    assert ">5</a> (" in card, card
    second.command("fleet", "drain", "r2", "--config", str(second.config))
    until(lambda: bridges()["r2"][0] == "draining", "a bridge that drains says so")
    until(lambda: "<dt>Calls</dt><dd>5</dd>" in visitor.get("usage"), "usage is of all")
    usage = visitor.get("usage")
    assert re.findall(r'<tr><td>(r\d)</td><td class="number">(\d)</td>', usage) == [("r1", "2"), ("r2", "3")]
    second.kill()
    until(lambda: bridges(may_lack=True).get("r2", ["", ""])[0] == "has left", "who has left is named")
    for path in ("", "usage"):
        page = visitor.get(path, may_lack=True)
        assert "Bridge r2 does not answer, so its figures are missing here" in page


def test_a_bridge_that_does_not_answer_is_named_on_the_page(pair: Fleet, http: httpx2.Client) -> None:
    first, second = pair.replicas
    echo = name_of(first, "echo")
    for replica in pair.replicas:
        call(replica, echo, replica.name)
    visitor = Visitor(first, http)
    until(lambda: "2 calls" in visitor.get("calls"), "both are recorded")
    after = re.findall(r"calls/list\?after=([\w-]+)", visitor.get("calls"))[0]
    second.signal(signal.SIGSTOP)
    try:
        page = visitor.get("calls", may_lack=True)
        assert "Bridge r2 does not answer, so its calls are missing here" in page
        assert visitor.texts(page) == [("r1", "r1")]
        page = visitor.get(f"calls/list?after={after}", may_lack=True)
        assert "r2 does not answer" in page, "also where a page is open"
    finally:
        second.kill()
    until(
        lambda: "it left the fleet" in visitor.get("calls", may_lack=True),
        "it is still named when it is no member any more",
    )
    answer = http.get(f"{first.root}/console/calls/export.csv")
    assert "-without-r2.csv" in answer.headers["content-disposition"]
    second.start()
    until(lambda: "2 calls" in visitor.get("calls", may_lack=True), "its calls are there again")
    assert "r2 does not answer" not in visitor.get("calls", may_lack=True)


def test_the_bridge_that_is_asked_keeps_to_what_somebody_may_see(pair: Fleet) -> None:
    first, second = pair.replicas
    call(second, name_of(second, "echo"), "of tester")
    sockets = [path for path in first.directory.rglob("*") if path.is_socket()]

    def asked(query: dict[str, Any]) -> list[Any]:
        for path in sockets:
            answer = ask(path, {"do": "fleet.log", "query": query, "bridge": "r2"}, patience=60)
            if answer and "rows" in answer:
                return list(answer["rows"])  # type: ignore[call-overload] - JSON
        raise AssertionError(sockets)

    def uids(somebody: str, **which: str) -> list[str]:
        query = {"what": "page", "which": which, "whose": {"principals": [somebody]}}
        return [row["uid"] for row in asked(query)[0]["rows"]]

    until(lambda: len(uids("tester")) == 1, "the call is recorded")
    [uid] = uids("tester", principal="nobody else")
    assert uids("other", principal="tester") == uids("other") == uids("*") == []
    for principal, found in (("tester", 1), ("other", 0)):
        whose = {"principals": [principal]}
        assert len(asked({"what": "call", "uid": uid, "whose": whose})) == found
        assert asked({"what": "count", "whose": whose})[0]["count"] == found
        assert asked({"what": "sessions", "whose": whose}) == asked({"what": "events", "whose": whose}) == []
