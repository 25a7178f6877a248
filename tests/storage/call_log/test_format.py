"""How a record becomes a row: what is masked together is masked as well as alone."""

from collections.abc import Sequence
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.storage.call_log.format import CALL_COLUMNS, CallRecord, CallRows, insert_calls
from mcpbridge.storage.call_log.schema import SCHEMA
from mcpbridge.storage.sqlite.database import open_file
from support.call_records import record
from support.secret_texts import ISSUED, ORDINARY, SECRETS

REDACT = Redactor(["hunter2hunter2"])
HALVES = ["password", "password: ", '"token": ', "Bearer", "<password>", "</password>", "-----BEGIN PRIVATE KEY-----"]
SECRET = st.sampled_from([*SECRETS.values(), *((text, text) for text in ISSUED.values()), ("x", "x"), ("", "-")])
TEXTS = st.tuples(SECRET, st.sampled_from(["", *HALVES, *ORDINARY.values()]), st.booleans())


@given(st.lists(st.lists(TEXTS, min_size=3, max_size=3), min_size=1, max_size=8))
@settings(deadline=None)
def test_a_secret_is_masked_whatever_stands_beside_it(records: list[list[tuple[tuple[str, str], str, bool]]]) -> None:
    texts = [[f"{more}\n{text}" if first else f"{text}\n{more}" for (text, _), more, first in one] for one in records]
    found = masked_contents([tuple(text.encode() for text in one) for one in texts])
    for parts, sent, masked in zip(records, texts, found, strict=True):
        for ((_, secret), _, _), text, shown in zip(parts, sent, masked, strict=True):
            if secret not in REDACT(text):
                assert secret.encode() not in shown


@given(st.lists(st.sampled_from([*ORDINARY.values(), "a line\n"]), min_size=3, max_size=60))
@settings(deadline=None)
def test_what_is_no_secret_stays(texts: list[str]) -> None:
    records = [tuple(text.encode() for text in texts[at : at + 3]) for at in range(0, len(texts) - 2, 3)]
    assert masked_contents(records) == records


def masked_contents(records: Sequence[tuple[bytes, ...]]) -> list[tuple[bytes, ...]]:
    """What is kept of the arguments, the result and the arguments as sent of each record."""
    made = [record(arguments=one[0], result=one[1], asked=one[2] or b"-") for one in records]
    found = CallRows(REDACT, 64 * 1024).contents(made)
    return [(arguments, result, asked or b"") for arguments, asked, result in found]


def test_texts_that_hold_what_parts_them_are_kept_apart() -> None:
    for apart in (b"a" + b"\n" * 200 + b"b", b"a\n", b"\na", b"\n" * 64):
        kept = CallRows(REDACT, 1000).contents([record(arguments=apart, result=b"hunter2hunter2", asked=b"c")])[0]
        assert kept == (apart, b"c", b"[redacted]")


def test_each_row_has_all_that_its_record_has_whatever_those_beside_it_have(tmp_path: Path) -> None:
    """Calls over a network, of a person, with notes, and with nothing of that: all in one batch, in their order."""
    more: list[dict[str, Any]] = [
        {"user": "Ada", "oauth_client": "app"},
        {"address": "10.0.0.7"},
        {"facts": {"retries": 1, "kept": "h1", "rule": "rule 2"}},
        {"parent": 7, "asked": b"{}", "original_size": 900, "original_tokens": 282},
        {"role": "ops", "rule": "rule 1", "client_version": "2.0"},
    ]
    records: list[CallRecord] = []
    for number, chosen in enumerate(product((False, True), repeat=len(more)), 1):
        fields = {key: value for facts, on in zip(more, chosen, strict=True) if on for key, value in facts.items()}
        records.append(record(uid=number, **fields))
    with closing(open_file(tmp_path / "calls.db", SCHEMA)) as connection:
        insert_calls(connection, records, REDACT, 1000)
        found = connection.execute(f"SELECT {CALL_COLUMNS} FROM call ORDER BY id").fetchall()
    rows = CallRows(REDACT, 1000)
    assert found == [rows.row(one) for one in records]
