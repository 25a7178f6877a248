"""Arguments that name a member twice are refused where somebody decides by them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.pipeline.validation.json_text import refuse_doubles


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (b'{"path":"/etc","path":"/tmp"}', "path"),
        (b'{"path":"/etc", "p\\u0061th" :"/tmp"}', "path"),
        (b'{"a":1,"b":[{"c":{"d":1,"e":2,"d":1}}]}', "d"),
        (b'{"":1,"":1}', ""),
        (b'{"a":\xff,"a":1}'.replace(b"\xff", b'"\xff"'), "a"),
        (b'{"n":%b,"n":1}' % (b"9" * 10_000), "n"),
    ],
)
def test_a_member_that_is_named_twice_is_refused_and_named(arguments: bytes, name: str) -> None:
    with pytest.raises(ArgumentsRefused, match=f"`{name}` is named twice") as refused:
        refuse_doubles("up/echo", Raw(arguments))
    assert "/etc" not in refused.value.full_message()


@pytest.mark.parametrize("arguments", [None, b"{}", b"null", b'{"a":{"a":1},"b":{"a":"\\"a\\":1"}}', b'{"n":1e999}'])
def test_what_is_named_once_passes(arguments: bytes | None) -> None:
    refuse_doubles("up/echo", arguments)


def test_what_is_nested_too_deeply_to_be_looked_at_is_refused() -> None:
    with pytest.raises(ArgumentsRefused, match="cannot be read"):
        refuse_doubles("up/echo", b'{"a":' * 100_000 + b"1" + b"}" * 100_000)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)))
def test_what_python_encodes_has_no_doubles(value: Any) -> None:
    refuse_doubles("up/echo", json.dumps({"a": value}, ensure_ascii=False).encode("utf-8", "surrogatepass"))
