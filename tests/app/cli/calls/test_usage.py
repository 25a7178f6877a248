"""`mcpbridge usage`, on what a real bridge wrote, and on what several people did (issue 23)."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

from mcpbridge.storage.call_log.log import CallLog
from mcpbridge.storage.settings import CallLogSettings
from support.call_records import record
from support.harness import Place, eventually, python_server
from support.json_output import check

SERVERS = {"one": python_server("plain")}


async def usage(place: Place, *args: str) -> Any:
    return await place.run("usage", "--config", str(place.folder / "servers.toml"), *args)


async def document(place: Place, *args: str) -> dict[str, Any]:
    finished = await usage(place, "--json", *args)
    assert finished.code == 0, finished.err
    found = json.loads(finished.out)
    check(found)
    return found


async def team_log(place: Place) -> None:
    """Calls of two people, one of whom chose a name for a spreadsheet."""
    path = place.folder / ".local" / "state" / "mcpbridge" / "calls.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    log = CallLog(lambda: path, CallLogSettings())
    log.append(record(0, principal="p#ann", user="ann@example.com", role="staff", tokens=2_000_000, seconds=90.0))
    log.append(record(1, principal="p#eve", user="=HYPERLINK(1)", outcome="failed"))
    await log.close()


async def test_calls_of_a_bridge_are_summed_up(place: Place) -> None:
    place.config(SERVERS)
    nothing = await usage(place)
    assert (nothing.code, nothing.out) == (0, "")
    assert "nothing was called yet" in nothing.err
    async with place.bridge(SERVERS) as client:
        await client.initialize()
        await client.call("one__echo", text="x")
        await client.call("one__raw_result", raw='{"content":[],"isError":true}')
    found = await eventually(lambda: document(place, "--by", "user,tool"), lambda one: len(one["rows"]) == 2)
    assert {row["tool"]: (row["calls"], row["failures"]) for row in found["rows"]} == {
        "one/echo": (1, 0),
        "one/raw_result": (1, 1),
    }
    table = (await usage(place)).out.splitlines()
    titles = ["User", "Calls", "Failed", "Needed sign-in", "Refused", "Tokens in", "Tokens out", "Saved", "Time"]
    assert re.split(r"  +", table[0].strip()) == titles
    assert table[1].startswith("(local user)  2")
    assert len(table) == 2, "one row needs no sum"


async def test_people_are_named_and_priced(place: Place) -> None:
    place.config(SERVERS)
    await team_log(place)
    lines = (await usage(place, "--since", "2026-01-01", "--price", "3", "--no-header")).out.splitlines()
    assert lines[0].startswith("ann@example.com (p#ann)")
    assert re.sub(r" {2,}", "  ", lines[0]).endswith("2,000,000  0  90s  6.00")
    assert lines[2].startswith("total")
    rows = (await document(place, "--since", "2026-01-01", "--by", "team", "--user", "ann*"))["rows"]
    assert [(row["team"], row["calls"]) for row in rows] == [("staff", 1)]


async def test_a_spreadsheet_gets_no_formula(place: Place) -> None:
    """Clients and providers choose names."""
    place.config(SERVERS)
    await team_log(place)
    text = (await usage(place, "--since", "2026-01-01", "--csv")).out
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["name"] for row in rows] == ["ann@example.com", "'=HYPERLINK(1)"]
    assert rows[0]["seconds"] == "90.0"


async def test_a_mistake_and_nothing_to_show_say_what_to_do(place: Place, tmp_path: Path) -> None:
    place.config(SERVERS)
    wrong = await usage(place, "--by", "people")
    assert wrong.code == 2
    assert "--by: expected some of user, server" in wrong.err
    assert (await usage(place, "--since", "soon")).code == 2
    await team_log(place)
    assert "`mcpbridge usage` shows who called" in (await usage(place, "--user", "bob")).err
    place.config(SERVERS, call_log={"enabled": False})
    assert "`call_log.enabled = false`" in (await usage(place, "--user", "bob")).err
