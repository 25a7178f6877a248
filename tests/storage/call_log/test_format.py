"""How a record becomes a row: what is masked together is masked as well as alone."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.storage.call_log.format import CallRows
from support.call_records import record
from support.secret_texts import ISSUED, ORDINARY, SECRETS

REDACT = Redactor(["hunter2hunter2"])
HALVES = ["password", "password: ", '"token": ', "Bearer", "<password>", "</password>", "-----BEGIN PRIVATE KEY-----"]
SECRET = st.sampled_from([*SECRETS.values(), *((text, text) for text in ISSUED.values()), ("x", "x"), ("", "-")])
TEXTS = st.tuples(SECRET, st.sampled_from(["", *HALVES, *ORDINARY.values()]), st.booleans())


@given(st.lists(TEXTS, min_size=3, max_size=3))
@settings(deadline=None)
def test_a_secret_is_masked_whatever_stands_beside_it(parts: list[tuple[tuple[str, str], str, bool]]) -> None:
    texts = [f"{more}\n{text}" if first else f"{text}\n{more}" for (text, _), more, first in parts]
    arguments, result, asked = (text.encode() for text in texts)
    kept = CallRows(REDACT, 64 * 1024).contents(record(arguments=arguments, result=result, asked=asked or b"-"))
    for ((_, secret), _, _), text, masked in zip(parts, texts, (kept[0], kept[2], kept[1] or b""), strict=True):
        if secret not in REDACT(text):
            assert secret.encode() not in masked


@given(st.lists(st.sampled_from(list(ORDINARY.values())), min_size=3, max_size=3))
def test_what_is_no_secret_stays(texts: list[str]) -> None:
    arguments, result, asked = (text.encode() for text in texts)
    kept = CallRows(REDACT, 64 * 1024).contents(record(arguments=arguments, result=result, asked=asked))
    assert kept == (arguments, asked, result)


def test_texts_that_hold_what_parts_them_are_kept_apart() -> None:
    for apart in (b"a" + b"\n" * 200 + b"b", b"a\n", b"\na", b"\n" * 64):
        kept = CallRows(REDACT, 1000).contents(record(arguments=apart, result=b"hunter2hunter2", asked=b"c"))
        assert kept == (apart, b"c", b"[redacted]")
