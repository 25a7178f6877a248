"""What a function returned, as a result; what it yielded, as progress."""

import base64
import datetime
import math
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from mcpbridge.tools.python.output import EVENT, Misshapen, check_of, failure, parameters_of, result_of, wrapped

TEXT = {"type": "text", "text": "x"}


@dataclass
class Place:
    name: str


class Model(BaseModel):
    high: int = Field(alias="HIGH")


def value_of(returned: object, **known: Any) -> dict[str, Any]:
    return result_of(returned, "tool", **known).value()


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (None, {"content": [{"type": "text", "text": ""}]}),
        ("x", {"content": [TEXT]}),
        ("\ud800", {"content": [{"type": "text", "text": "?"}]}),
        (3, {"content": [{"type": "text", "text": "3"}]}),
        (True, {"content": [{"type": "text", "text": "true"}]}),
        ({"a": 1}, {"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"a": 1}}),
        ([1, 2], {"content": [{"type": "text", "text": "[1,2]"}], "structuredContent": {"result": [1, 2]}}),
        (Place("Ulm"), {"content": [{"type": "text", "text": '{"name":"Ulm"}'}], "structuredContent": {"name": "Ulm"}}),
        (Model(HIGH=1), {"content": [{"type": "text", "text": '{"HIGH":1}'}], "structuredContent": {"HIGH": 1}}),
        (datetime.date(2026, 1, 2), {"content": [{"type": "text", "text": "2026-01-02"}]}),
        (Decimal("1.5"), {"content": [{"type": "text", "text": "1.5"}]}),
        ({"n": math.nan}, {"content": [{"type": "text", "text": '{"n":null}'}], "structuredContent": {"n": None}}),
        (TEXT, {"content": [TEXT]}),
        ([TEXT, TEXT], {"content": [TEXT, TEXT]}),
        ({"content": [TEXT], "isError": True}, {"content": [TEXT], "isError": True}),
        (b"GIF89a", {"content": [{"type": "image", "data": "R0lGODlh", "mimeType": "image/gif"}]}),
    ],
)
def test_results_by_what_was_returned(returned: object, expected: dict[str, Any]) -> None:
    assert value_of(returned) == expected


def test_what_looks_like_a_block_and_is_none_is_data() -> None:
    for data in ({"type": "image", "name": "x"}, {"type": "text"}, [TEXT, {"type": "text"}], {"content": []}):
        assert "structuredContent" in value_of(data)


def test_bytes_that_are_no_image_become_a_resource() -> None:
    (block,) = value_of(b"\x00\x01")["content"]
    assert block["type"] == "resource"
    assert base64.b64decode(block["resource"]["blob"]) == b"\x00\x01"


def test_what_is_no_json_is_told_by_its_type() -> None:
    with pytest.raises(Misshapen, match="function is no JSON"):
        value_of(lambda: None)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Misshapen):
        value_of(loop)


def test_a_schema_of_no_object_is_wrapped_and_keeps_its_definitions() -> None:
    schema = {"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}}
    made = wrapped(schema)
    assert made["type"] == "object"
    check = check_of(made)
    assert value_of([1], check=check, is_wrapped=True)["structuredContent"] == {"result": [1]}
    with pytest.raises(Misshapen, match=r"result\.0"):
        value_of(["x"], check=check, is_wrapped=True)
    assert wrapped({"type": "object", "a": 1}) == {"type": "object", "a": 1}
    assert wrapped({"$ref": "#/$defs/n"})["type"] == "object"


def test_with_a_schema_every_result_is_structured() -> None:
    check = check_of({"type": "object", "required": ["type"]})
    assert value_of(TEXT, check=check)["structuredContent"] == TEXT
    with pytest.raises(Misshapen, match="output schema"):
        value_of(None, check=check)
    with pytest.raises(Misshapen, match="structuredContent"):
        value_of({"content": [TEXT]}, check=check)
    assert value_of({"content": [TEXT], "isError": True}, check=check)["isError"]


def test_a_schema_that_is_none_or_looks_elsewhere_is_refused() -> None:
    for schema in ({"type": "nothing"}, {"$ref": "http://127.0.0.1:1/x"}, {"pattern": "("}):
        with pytest.raises(ValueError, match=r"."):
            check_of(schema)


def test_a_failure_survives_any_text() -> None:
    assert failure("\ud800").value()["isError"] is True


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(value=_JSON)
def test_any_json_comes_out_as_a_result_with_the_same_in_it(value: Any) -> None:
    result = value_of(value)
    assert isinstance(result["content"], list)
    if isinstance(value, dict | list) and "structuredContent" in result:
        assert result["structuredContent"] == (value if isinstance(value, dict) else {"result": value})


_EVENTS = _JSON | st.fixed_dictionaries({}, optional={"progress": _JSON, "total": _JSON, "message": _JSON, "x": _JSON})


@settings(max_examples=60)
@given(events=st.lists(_EVENTS, max_size=6))
@example([{"progress": sys.float_info.max}, {"progress": None}, {"x": 1}])
@example([{"progress": 10**400, "total": -(10**400)}, {"progress": float("inf")}, {"progress": float("nan")}, "more"])
@example([{"progress": 2**53 + 1}, {"progress": None}, "more"])
def test_progress_always_increases_and_is_as_the_spec_wants_it(events: list[Any]) -> None:
    last = None
    for event in events:
        params = parameters_of(event, last)
        assert (-math.inf if last is None else last) < params["progress"] < math.inf
        assert params.keys() <= {"progress", "total", "message", "_meta"}
        assert isinstance(params.get("message", ""), str)
        assert isinstance(params.get("total", 0), int | float)
        if "_meta" in params:
            assert params["_meta"][EVENT] == event
        msgspec.json.encode(params)
        last = params["progress"]


@pytest.mark.parametrize(
    ("told", "heard"),
    [
        ([0], [0]),
        ([0, 1, 2], [0, 1, 2]),
        ([0, 0], [0, 1e-9]),
        ([0.0, 0.5], [0.0, 0.5]),
        ([-1, 0], [-1, 0]),
        ([None], [1]),
        (["half"], [1]),
        ([5, 5], [5, 5 + 1e-9]),
        ([2**60, 2**60], [2**60, math.nextafter(2**60, math.inf)]),
    ],
    ids=range(9),
)
def test_progress_is_passed_on_as_it_was_told(told: list[Any], heard: list[float]) -> None:
    """Progress 0 became the smallest number that there is, which clients show as such."""
    last, seen = None, list[float]()
    for value in told:
        last = parameters_of({"progress": value}, last)["progress"]
        seen.append(last)
    assert seen == heard
