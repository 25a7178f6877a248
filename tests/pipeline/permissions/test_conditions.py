"""Conditions on calls: what is refused when they are read, and what they say of a call (issue 4)."""

import subprocess
import sys
from typing import Any

import pytest

from mcpbridge.pipeline.permissions.conditions import (
    LONGEST,
    MOST_VALUES,
    MOST_VALUES_AT_ALL,
    Condition,
    Faulty,
    Undecidable,
    condition_of,
)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("1 +", "mismatched input '<EOF>', at character 4"),
        ("args.a ===\n 1", "at character"),
        ("", "at character"),
        ("arg.amount > 1", "unknown variable `arg` (did you mean `args`?)"),
        ("amount > 1", "unknown variable `amount`; known: args, client, context, tool"),
        ("args.to.startswith('x')", "unknown function `startswith` (did you mean `startsWith`?)"),
        ("tool.nme == 'x'", "`tool` has no `nme` (did you mean `name`?)"),
        ("client.roles == 'x'", "`client` has no `roles`; known: name, principal"),
        ("context.usr == 'x'", "`context` has no `usr` (did you mean `user`?)"),
        ("args.list.all(args, true)", "cannot call its variable `args`"),
        ("args.a.all(x, args.b.all(y, args.c.all(z, x == z)))", "more than 2 loops"),
        ("(" * 200 + "1" + ")" * 200, "nested too deeply"),
        ("true || " * 200 + "true", f"longer than {LONGEST} characters"),
    ],
)
def test_what_can_never_be_evaluated_is_refused_when_it_is_read(source: str, told: str) -> None:
    with pytest.raises(Faulty) as caught:
        Condition(source)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("source", "arguments", "holds"),
    [
        ("args.amount > 100", {"amount": 101}, True),
        ("args.amount > 100", {"amount": 100.5}, True),
        ("args.amount > 100", {"amount": 2**70}, True),
        ("has(args.force) && args.force", {}, False),
        ("has(args.force) && args.force", {"force": True}, True),
        ("!has(args.path) || args.path.startsWith('/tmp/')", {"path": "/etc/passwd"}, False),
        ("args.path.matches('^/tmp/[a-z]+$')", {"path": "/tmp/x"}, True),
        ("args.to.all(x, x.endsWith('@example.org'))", {"to": ["a@example.org", "b@example.com"]}, False),
        ("args.to.exists(x, args.cc.exists(y, x == y))", {"to": ["a", "b"], "cc": ["c", "b"]}, True),
        ("args['to-who'] == 'me'", {"to-who": "me"}, True),
        ("args.size() == 2", {"a": 1, "b": 2}, True),
        ("'x' in args", {"x": None}, True),
        ("args == {'a': 1}", {"a": 1, "b": 2}, False),
        ("args.a.b.c[0] == 'tool.nme (' // tool.nme (", {"a": {"b": {"c": ["tool.nme ("]}}}, True),
        ("type(args.a) == string && args.a == r'\\'", {"a": "\\"}, True),
        ("args.missing || args.a", {"a": True}, True),
        (
            "size(args.text) > 3 && timestamp(args.at) > timestamp('2020-01-01T00:00:00Z')",
            {"text": "x", "at": 1},
            False,
        ),
    ],
)
def test_a_condition_holds_or_not(source: str, arguments: dict[str, Any], holds: bool) -> None:
    condition = Condition(source)
    if condition.arguments is not None:
        arguments = {name: value for name, value in arguments.items() if name in condition.arguments}
    assert condition.holds({"args": arguments}) is holds


@pytest.mark.parametrize(
    ("source", "arguments", "told"),
    [
        ("args.amount > 100", {}, "'amount' is missing"),
        ("args.amount > 100", {"amount": "secret"}, "of another type"),
        ("args.amount > 100", {"amount": None}, "of another type"),
        ("args[args.key] == 1", {"key": "secret"}, "something that it names is missing"),
        ("args.list[3] == 1", {"list": []}, "shorter"),
        ("args.amount / args.by > 1", {"amount": 1, "by": 0}, "cannot be computed"),
        ("args.amount", {"amount": 5}, "neither true nor false"),
        ("args.amount == 1 ? 'yes' : 'no'", {"amount": 1}, "neither true nor false"),
        ("args.a.matches(args.b)", {"a": "x", "b": "(secret"}, ""),
    ],
)
def test_what_cannot_be_evaluated_is_said_without_what_the_call_has(
    source: str, arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(Undecidable) as caught:
        Condition(source).holds({"args": arguments})
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_condition_with_loops_is_not_evaluated_over_very_much() -> None:
    """Clients choose what is looped over, and nothing stops a loop."""
    condition = Condition("args.rows.all(row, row.all(cell, cell >= 0))")
    rows = [[0] * 9] * (MOST_VALUES // 10 - 1)
    assert condition.holds({"args": {"rows": rows}})
    with pytest.raises(Undecidable, match=f"more than {MOST_VALUES} values"):
        condition.holds({"args": {"rows": [*rows, *rows]}})


@pytest.mark.parametrize(
    "source",
    [
        "args.rows.all(x, args.rows.all(y, !args.text.matches('(a|b)*z[0-9]+q')))",
        "args.rows.all(x, args.rows.all(y, args.rows == args.rows))",
        "args.rows.map(x, args.rows.map(y, args.text)) != []",
        "context.metadata.all(x, args.rows.exists(y, args.text.contains('z')))",
    ],
)
def test_a_condition_with_loops_is_not_evaluated_over_long_texts_and_lists(source: str) -> None:
    """Every round may look at all of it: 240 items and a text of 100 KB took 10 s."""
    condition, rows = Condition(source), list(range(60))
    for text, more, told in (("ab" * 50_000, [], "too long"), ("ab" * 500, rows * 6, "too long"), ("ab" * 100, [], "")):
        values = {"args": {"rows": rows + more, "text": text}, "context": {"metadata": {str(row): 1 for row in rows}}}
        read = {name: value for name, value in values.items() if name in condition.reads}
        if told:
            with pytest.raises(Undecidable, match=told):
                condition.holds(read)
        else:
            assert condition.holds(read) in (True, False)


@pytest.mark.parametrize(
    ("source", "rows", "text"),
    [
        ("args.rows.all(x, args.rows.exists_one(y, y == x))", 100, ""),
        ("args.rows.all(x, args.text.contains('z'))", 490, "z" * 10_000),
    ],
)
def test_what_people_loop_over_is_evaluated(source: str, rows: int, text: str) -> None:
    """The sizes that docs/calls.md names."""
    assert Condition(source).holds({"args": {"rows": [f"item {row}" for row in range(rows)], "text": text}})


def test_a_condition_is_not_evaluated_over_very_many_values() -> None:
    """The library takes them over one by one, on the event loop."""
    condition = Condition("size(args.rows) > 1")
    assert condition.holds({"args": {"rows": [0] * (MOST_VALUES_AT_ALL - 1)}})
    for rows in ([0] * MOST_VALUES_AT_ALL, [{"a": {"b": 0}}] * (MOST_VALUES_AT_ALL // 3 + 1)):
        with pytest.raises(Undecidable, match=f"more than {MOST_VALUES_AT_ALL} values"):
            condition.holds({"args": {"rows": rows}})


def test_a_condition_knows_what_it_reads() -> None:
    assert condition_of("args.a > 1 && has(args.b)") is condition_of("args.a > 1 && has(args.b)")
    assert condition_of("args.a > 1 && has(args.b)").arguments == {"a", "b"}
    assert condition_of("args.a > 1 && args.contains('b')").arguments is None
    assert condition_of("args['a'] > 1 && has(args.b)").arguments is None
    condition = condition_of("tool.risk == 'high' && context.metadata.args.exists(x, x == 'args.z')")
    assert condition.reads == {"tool", "context"}


def test_the_command_line_of_the_library_is_not_imported() -> None:
    """It takes ten times as long as the rest; and whoever wants all of the library still gets it."""
    script = (
        "import sys; from mcpbridge.pipeline.permissions.conditions import condition_of\n"
        "assert 'cel' not in sys.modules and 'cel.cel' not in sys.modules\n"
        "assert condition_of('args.a == 1').holds({'args': {'a': 1}})\n"
        "assert 'typer' not in sys.modules and 'prompt_toolkit' not in sys.modules\n"
        "import cel; assert cel.evaluate('1 + 1') == 2 and 'typer' in sys.modules\n"
        "assert condition_of('args.b == 1').holds({'args': {'b': 1}})\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=150)
