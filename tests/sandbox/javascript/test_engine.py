"""What an expression gives, and what its author is told when it fails."""

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge.sandbox.javascript.engine import JavaScript
from mcpbridge.sandbox.javascript.scripts import TransformFailed
from mcpbridge.sandbox.javascript.worker_main import has_long_numbers

ROWS = '[{"id":12345678901234567,"price":1.5,"name":"x"},{"id":5,"price":2,"name":"y"}]'


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def engine(anyio_backend: str) -> AsyncIterator[JavaScript]:
    async with JavaScript(deadline=20) as javascript:
        yield javascript


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("result.length", "2"),
        ("result[0].name", "x"),
        ("result.map(r => r.name)", '["x","y"]'),
        ("result.map(r => r.name);", '["x","y"]'),
        ("result.map(r => r.name) // the names", '["x","y"]'),
        ("r => r.length", "2"),
        ("(r) => ({n: r.length})", '{"n":2}'),
        ("function (r) { return r.length }", "2"),
        (".map(r => r.name)", '["x","y"]'),
        ("=> result.length", "2"),
        ("```js\nresult.length\n```", "2"),
        ("const names = result.map(r => r.name); names.join('-')", "x-y"),
        ("const names = result.map(r => r.name); return names.join('-');", "x-y"),
        ("const f = r => { return r.name }; result.map(f)", '["x","y"]'),
        ("for (var i = 0; i < 3; i++); i", "3"),
        ("{n: result.length}", '{"n":2}'),
        ("await Promise.resolve(3)", "3"),
        ("const n = await Promise.resolve(3); return n", "3"),
        ("async r => r.length", "2"),
        ("new Map([['a', new Set([1])]])", '{"a":[1]}'),
        ("new Map([[{}, 1]])", "[[{},1]]"),
        ("result.values().map(r => r.name)", '["x","y"]'),
        ("Object.groupBy(result, r => r.name).y.length", "1"),
        ("[NaN, 1/0, undefined]", "[null,null,null]"),
        ("NaN", "NaN"),
        ("null", "null"),
        ("''", ""),
        ("'a\\0b\\x01a\\x01'", "a\0b\x01a\x01"),
        ("'\\ud800x'", "\ufffdx"),
        ("new Date(0)", '"1970-01-01T00:00:00.000Z"'),
        ("console.log(1), 2", "2"),
        ("atob('aGk=')", "hi"),
        ("text.length", str(len(ROWS))),
    ],
)
async def test_an_expression_gives_its_value(engine: JavaScript, expression: str, answer: str) -> None:
    assert await engine.evaluate(expression, ROWS, binding="json") == answer


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("result.map(r => r.id)", "[12345678901234567,5]"),
        ("result.find(r => r.id === 12345678901234567).name", "x"),
        ("result.find(r => r.id == 12345678901234567).name", "x"),
        ("result.some(r => r.id == 12345678901234568)", "false"),
        ("'id ' + result[0].id", "id 12345678901234567"),
        ("`${result[0].id}`", "12345678901234567"),
        ("JSON.stringify(result[0].id)", "12345678901234567"),
        ("Object.fromEntries(result.map(r => [r.id, r.name]))", '{"5":"y","12345678901234567":"x"}'),
        ("new Map(result.map(r => [r.id, r.name])).get(result[0].id)", "x"),
        ("result.sort((a, b) => a.id - b.id).map(r => r.name)", '["y","x"]'),
        ("10n ** 20n", "100000000000000000000"),
    ],
)
async def test_long_numbers_stay_exact(engine: JavaScript, expression: str, answer: str) -> None:
    assert await engine.evaluate(expression, ROWS, binding="json") == answer


async def test_a_long_number_is_rather_refused_than_summed_wrongly(engine: JavaScript) -> None:
    with pytest.raises(TransformFailed, match=r"Number\(…\)"):
        await engine.evaluate("result[0].id + 1", ROWS, binding="json")


decimals = st.decimals(-(10**15), 10**15).filter(lambda number: number != number.to_integral_value())


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(st.integers() | decimals, max_size=8))
async def test_what_is_passed_on_unchanged_keeps_its_value(engine: JavaScript, values: list[int | Decimal]) -> None:
    text = f"[{','.join(map(str, values))}]"
    answer = json.loads(await engine.evaluate("result", text, binding="json"), parse_float=Decimal)
    for told, meant in zip(answer, values, strict=True):
        if isinstance(meant, int) or len(meant.as_tuple().digits) > 17:
            assert told == meant
        else:
            assert float(told) == float(meant)


@pytest.mark.parametrize(
    ("text", "are_there"),
    [
        ("[12345678901234567]", True),
        ("12345678901234567", True),
        ('{"a": -0.1234567890123456789}', True),
        ('{"a":"12345678901234567"}', False),
        ("[0.30000000000000004]", False),
        ("[1234567890]", False),
    ],
)
def test_long_numbers_are_looked_for_outside_of_strings(text: str, are_there: bool) -> None:
    assert has_long_numbers(text) is are_there


@pytest.mark.parametrize(
    ("text", "binding", "rows", "expression", "answer"),
    [
        ('{"a":1}\n\n{"a":2}\n', "ndjson", "", "result.map(r => r.a)", "[1,2]"),
        ("a\nb\n", "text", "", "result.toUpperCase() + lines.length", "A\nB\n2"),
        ("a\0b", "text", "", "result", "a\0b"),
        ("a\ud800é😀", "text", "", "result", "a\ufffdé😀"),
        ("a\n1\n", "text", '[{"a":1}]', "rows.map(r => r.a)", "[1]"),
        ("\ufeff[1]", "json", "", "result", "[1]"),
        ("", "text", "", "result.length", "0"),
    ],
)
async def test_what_is_bound(
    engine: JavaScript, text: str, binding: Literal["json", "ndjson", "text"], rows: str, expression: str, answer: str
) -> None:
    assert await engine.evaluate(expression, text, binding=binding, rows=rows) == answer


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("", "empty"),
        (" ; ", "empty"),
        ("undefined", "gave undefined; `result` is an array of 2 objects with the members id, price, name"),
        ("() => () => 1", "gave a function"),
        ("Symbol('s')", "gave a symbol"),
        ("new Promise(() => {})", "never settled"),
        ("result.map(r => r.name", "SyntaxError: .*character 23"),
        ("return (", "SyntaxError"),
        ("result.foo(1)", r"result\.foo is not a function .*`result` is an array of 2 objects"),
        ("result.map(r => r.a.b)", r"TypeError: cannot read property 'b' of undefined \(at character 17\)"),
        ("const a = 1;\nnothing.length", r"nothing is not defined \(at 2:1\).*`result` is"),
        ("throw new Error('boom')", "Error: boom"),
        ("throw 5", "it threw 5"),
        ("const a = {}; a.a = a; a", "circular"),
        ("'x'.repeat(9e6)", "9,000,000 characters"),
        ("JSON.parse('{')", "SyntaxError"),
        ("x" * 100_001, "longer than"),
    ],
)
async def test_a_failure_says_what_to_do_next(engine: JavaScript, expression: str, told: str) -> None:
    with pytest.raises(TransformFailed, match=told) as failed:
        await engine.evaluate(expression, ROWS, binding="json")
    assert "<input>" not in str(failed.value)
    assert "/" not in str(failed.value)


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "[" * 100_000 + "]" * 100_000])
async def test_a_result_that_is_not_what_it_should_be(engine: JavaScript, text: str) -> None:
    with pytest.raises(TransformFailed, match="cannot be bound"):
        await engine.evaluate("1", text, binding="json")


async def test_a_result_beyond_the_limit_is_refused(engine: JavaScript) -> None:
    with pytest.raises(TransformFailed, match="at most"):
        await engine.evaluate("1", "x" * ((64 << 20) + 1), binding="text")


async def test_sixteen_megabytes_are_read(engine: JavaScript) -> None:
    text = "[" + ",".join(['{"name":"some text of a row","value":1.5}'] * 400_000) + "]"
    assert await engine.evaluate("result.length", text, binding="json") == "400000"


async def test_a_large_answer_comes_whole(engine: JavaScript) -> None:
    answer = await engine.evaluate("'é'.repeat(5e6) + 'x'", "1", binding="json")
    assert answer == "é" * 5_000_000 + "x"


async def test_without_an_engine_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.sandbox.javascript.engine.find_spec", lambda name: None)
    async with JavaScript() as javascript:
        with pytest.raises(TransformFailed, match=r"mcpbridge\[js\]"):
            await javascript.evaluate("1", "1", binding="json")
