"""Conditions on calls: what is refused when they are read, and what they say of a call (issue 4)."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        ("amount > 1", "unknown variable `amount`; known: args, claims, client, context, tool"),
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
    """The sizes that docs/explanation/calls.md names."""
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


# -- how much a condition may look at


@pytest.mark.parametrize(
    ("source", "nested"),
    [
        ("args.a.all(x, x > 0) && args.b.all(x, x > 0) && args.c.exists(x, x > 0)", False),
        ("args.a.all(x, (x + (1)) > 0) || (args.b.all(y, (y) > 0) && (args.c.map(z, z) == []))", False),
        ("args.a.all(x, args.b.all(y, x == y)) && args.c.all(z, args.d.all(w, w == z))", False),
        ("args.a.all(x, size(args.b.filter(y, y == x)) > 0)", False),
        ("args.a.all(x, args.b.all(y, x == y)) && (args.c.all(z, z > 0))", False),
        ("args.a.exists_one(x, args.b.map(y, args.c.filter(z, z == x)) == [])", True),
        ("args.a.all(x, (args.b.all(y, (args.c.all(z, z == x)))))", True),
        ("args.a . all ( x , args.b.all( y,args.c . exists(z, z == x) ) )", True),
        ("args.a.map(x, args.b.map(y, y)).all(z, args.c.all(w, w == 1))", False),
        ("args.a.all(x, x == ') args.b.all(y, args.c.all(z, ')", False),
        ("args.a.all(x, true) // .all(y, .all(z, .all(w, ", False),
        ("args.a.all(x, args.b.all(y, args.c.size() == 1 && args.d.all(z, z == x)))", True),
    ],
)
def test_loops_count_as_nested_only_where_one_is_in_another(source: str, nested: bool) -> None:
    """Side by side they cost the sum, within one another the product."""
    if nested:
        with pytest.raises(Faulty, match="more than 2 loops"):
            Condition(source)
    else:
        Condition(source)


@pytest.mark.parametrize(
    ("source", "rows", "characters", "is_too_much"),
    [
        # One loop: rows times what is read, which is two members, the rows, and the characters with the names.
        ("args.rows.all(x, args.text != 'z')", 400, 24_500, False),
        ("args.rows.all(x, args.text != 'z')", 400, 24_700, True),
        ("args.rows.all(x, args.text != 'z')", 200, 49_700, False),
        ("args.rows.all(x, args.text != 'z')", 200, 49_900, True),
        # Two: the square of the rows.
        ("args.rows.all(x, args.rows.all(y, args.text != 'z'))", 50, 3_900, False),
        ("args.rows.all(x, args.rows.all(y, args.text != 'z'))", 50, 4_000, True),
        ("args.rows.all(x, args.rows.all(y, args.text != 'z'))", 210, 0, False),
        ("args.rows.all(x, args.rows.all(y, args.text != 'z'))", 220, 0, True),
        # A pattern is read anew in each round, which counts as a thousand characters.
        ("args.rows.all(x, !args.text.matches('z'))", 400, 23_500, False),
        ("args.rows.all(x, !args.text.matches('z'))", 400, 23_700, True),
        ("args.rows.all(x, args.rows.all(y, !args.text.matches('z')))", 90, 100, False),
        ("args.rows.all(x, args.rows.all(y, !args.text.matches('z')))", 95, 100, True),
        # Without a loop none of this counts.
        ("args.text != 'z' && size(args.rows) < 9999", 490, 1_000_000, False),
        ("!args.text.matches('z') && size(args.rows) < 9999", 490, 1_000_000, False),
    ],
)
def test_the_work_of_a_condition_has_a_bound(source: str, rows: int, characters: int, is_too_much: bool) -> None:
    """Rounds, by nesting, times values and characters of what is read: `MOST_WORK`."""
    values = {"args": {"rows": [0] * rows, "text": "a" * characters}}
    if is_too_much:
        with pytest.raises(Undecidable, match="too long for that"):
            Condition(source).holds(values)
    else:
        assert Condition(source).holds(values) is True


def test_the_longest_list_and_all_characters_count_at_any_depth() -> None:
    condition = Condition("args.rows.all(x, args.rows.all(y, args.deep != null))")
    deep: dict[str, Any] = {"a": [{"b": {"c": [0] * 240}}]}
    with pytest.raises(Undecidable, match="too long"):
        condition.holds({"args": {"rows": [0], "deep": deep}})
    assert condition.holds({"args": {"rows": [0] * 20, "deep": {"a": [{"b": {"c": [0] * 200}}]}}})
    names = {"n" * 3_000: 0}
    with pytest.raises(Undecidable, match="too long"):
        condition.holds({"args": {"rows": [0] * 60, "deep": names}})
    assert condition.holds({"args": {"rows": [0] * 50, "deep": names}})


@pytest.mark.parametrize(
    ("source", "most", "told"),
    [
        ("args.rows.all(x, x == 0)", MOST_VALUES, f"it loops, and the call has more than {MOST_VALUES} values"),
        ("size(args.rows) > 0", MOST_VALUES_AT_ALL, f"the call has more than {MOST_VALUES_AT_ALL} values"),
    ],
)
def test_so_many_values_are_looked_at_and_not_one_more(source: str, most: int, told: str) -> None:
    """The list itself is one of them."""
    condition = Condition(source)
    assert condition.holds({"args": {"rows": [0] * (most - 1)}})
    with pytest.raises(Undecidable) as caught:
        condition.holds({"args": {"rows": [0] * most}})
    assert str(caught.value) == told


def test_what_the_context_has_counts_as_well() -> None:
    condition = Condition("context.metadata.all(x, x != '')")
    metadata = {str(number): 1 for number in range(MOST_VALUES)}
    with pytest.raises(Undecidable, match="more than"):
        condition.holds({"context": {"metadata": metadata}})
    metadata.popitem()
    assert condition.holds({"context": {"metadata": metadata}})


@pytest.mark.parametrize(
    ("source", "rows", "characters", "is_too_much"),
    [
        # 10,000,000 / 400 = 25,000: the two members, 400 rows, 8 characters of names, and the text.
        ("args.rows.all(x, args.text != 'z')", 400, 24_590, False),
        ("args.rows.all(x, args.text != 'z')", 400, 24_591, True),
        ("args.rows.all(x, !args.text.matches('z'))", 400, 23_590, False),
        ("args.rows.all(x, !args.text.matches('z'))", 400, 23_591, True),
    ],
)
def test_the_bound_of_the_work_is_what_it_is_said_to_be(
    source: str, rows: int, characters: int, is_too_much: bool
) -> None:
    values = {"args": {"rows": [0] * rows, "text": "a" * characters}}
    if is_too_much:
        with pytest.raises(Undecidable, match="too long for that"):
            Condition(source).holds(values)
    else:
        assert Condition(source).holds(values) is True


def test_without_the_package_that_evaluates_conditions_each_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """None passes for one that holds, or that does not."""
    for name in ("cel", "cel.cel"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Faulty, match=r"common-expression-language.* is not installed"):
        Condition("args.a == 1")


@given(
    st.sampled_from(
        [
            "args.a == {}",
            "args.a != {}",
            " args.a.startsWith( {} ) ",
            "args.a.endsWith({})",
            "args.a.contains({})",
            "args.a  ==  {}  ",
        ]
    ),
    st.text("ab %", max_size=3),
    st.sampled_from("'\""),
    st.none() | st.integers() | st.booleans() | st.text(max_size=4) | st.text("ab %", max_size=4) | st.lists(st.text()),
)
def test_what_compares_one_text_says_the_same_as_any_other_form_of_it(
    form: str, text: str, quote: str, value: object
) -> None:
    """Such conditions need no library; as part of a longer one they do."""
    source = form.format(f"{quote}{text}{quote}")

    def outcome(condition: str) -> object:
        try:
            return Condition(condition).holds({"args": {"a": value}})
        except Undecidable as error:
            return str(error)

    assert outcome(source) == outcome(f"({source}) && true")


def test_a_text_with_escapes_is_read_as_the_language_has_it() -> None:
    assert Condition(r"args.a == 'x\ty'").holds({"args": {"a": "x\ty"}})
    assert Condition("args.a == r'x'").holds({"args": {"a": "x"}})
    assert not Condition("args.a == 'x' + 'y'").holds({"args": {"a": "x' + 'y"}})
    with pytest.raises(Undecidable, match="'b' is missing"):
        Condition("args.b == 'x'").holds({"args": {}})
