"""What the check of a value says when the validator gives up on a pattern, and of values with very many parts."""

from mcpbridge.pipeline.validation.schema_check import TOO_MANY_ERRORS, compiled

TAKES_LONG = {"properties": {"a": {"type": "string", "pattern": r"^(a*)*\1$"}, "b": {"type": "integer"}}}


def test_a_pattern_that_takes_too_many_steps_is_no_fault() -> None:
    check = compiled(TAKES_LONG)
    assert check.faults({"a": "aaa"}, 20) == []
    assert check.faults({"a": "a" * 200 + "!"}, 220) == [], "given up: nobody knows whether the text fits"
    assert [fault.path for fault in check.faults({"a": "a" * 200 + "!", "b": "c"}, 230)] == [("b",)]
    assert [fault.keyword for fault in check.faults({"a": "!"}, 20)] == ["pattern"]


def test_a_large_value_without_alternatives_has_its_first_fault_named() -> None:
    check = compiled({"items": {"type": "integer"}})
    value = [*range(TOO_MANY_ERRORS + 1), "x"]
    (fault,) = check.faults(value, 20_000)
    assert fault.path == (TOO_MANY_ERRORS + 1,)
    assert fault.keyword == "type"
