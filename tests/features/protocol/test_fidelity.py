"""What the bridge does not understand crosses it byte for byte: it reads frames and makes no models of them."""

import json
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.harness import Place, python_server
from support.rpc import StdioClient

NUMBERS = st.one_of(
    st.integers(min_value=-(10**60), max_value=10**60).map(str),
    st.sampled_from(["1.10", "1.0e500", "-0", "-0.0", "1E+2", "0.1e-999", "123456789012345678901234567890.5", "1e05"]),
    st.integers(min_value=0).map(lambda n: f"{n}.{n}0e+{n % 400}"),
)

STRINGS = st.lists(
    st.one_of(
        st.sampled_from(
            [r"\u00e9", r"\u00E9", r"\ud83d\ude00", r"\/", r"\\", r"\"", r"\n", r"\u0000", "\u2028", "\x7f"]
        ),
        st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters='"\\'),
    ),
    max_size=6,
).map(lambda parts: f'"{"".join(parts)}"')

BLANKS = st.sampled_from(["", "", " ", "\t", "  "])


def _joined(opening: str, items: list[str], closing: str, blank: str) -> str:
    return f"{opening}{blank}{f'{blank},{blank}'.join(items)}{blank}{closing}"


JSON_TEXTS = st.recursive(
    st.one_of(NUMBERS, STRINGS, st.sampled_from(["null", "true", "false"])),
    lambda inner: st.one_of(
        st.builds(_joined, st.just("["), st.lists(inner, max_size=4), st.just("]"), BLANKS),
        st.builds(
            lambda pairs, blank: _joined("{", [f"{key}{blank}:{value}" for key, value in pairs], "}", blank),
            st.lists(st.tuples(STRINGS, inner), max_size=4),
            BLANKS,
        ),
    ),
    max_leaves=12,
)
"""JSON as text, so that spelling, order, repeated keys and blanks are the test's too."""

KEYS_AND_VALUES = st.lists(st.tuples(STRINGS, JSON_TEXTS), max_size=5)

without_deadline = settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class _Answer(msgspec.Struct):
    result: msgspec.Raw


@pytest.fixture(scope="module")
async def client(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    """One bridge for all examples."""
    place = Place(tmp_path_factory.mktemp("fidelity"))
    async with place.bridge({"plain": python_server("plain")}) as client:
        await client.initialize()
        await client.tools_with("plain__echo")
        yield client
    place.clean()


@without_deadline
@given(pairs=KEYS_AND_VALUES)
@example(pairs=[('"n"', "7" * 20_000)])
@example(pairs=[('"deep"', "[" * 200 + "]" * 200)])
async def test_arguments_cross_byte_for_byte(client: StdioClient, pairs: list[tuple[str, str]]) -> None:
    arguments = "{" + ", ".join(f"{key} : {value}" for key, value in pairs) + "}"
    id_ = client.next_id()
    client.expect(id_)
    message = (
        f'{{"jsonrpc":"2.0","id":{id_},"method":"tools/call",'
        f'"params":{{"name":"plain__raw_arguments","arguments":{arguments},"unknown":{{"kept":1.10}}}}}}\n'
    )
    await client.write(message.encode())
    assert (await client.answer_to(id_)).text == arguments


@without_deadline
@given(pairs=KEYS_AND_VALUES)
@example(pairs=[('"n"', "7" * 20_000)])
@example(pairs=[('"deep"', "[" * 200 + "]" * 200)])
async def test_results_cross_byte_for_byte(client: StdioClient, pairs: list[tuple[str, str]]) -> None:
    members = ['"content":[]', *(f"{key} : {value}" for key, value in pairs if not key.startswith('"_'))]
    raw = "{" + " , ".join(members) + "}"
    reply = await client.call("plain__raw_result", raw=raw)
    assert bytes(msgspec.json.decode(reply.raw, type=_Answer).result) == raw.encode()


@without_deadline
@given(text=st.text())
async def test_texts_mean_the_same_on_both_sides(client: StdioClient, text: str) -> None:
    reply = await client.call("plain__echo", text=text)
    assert reply.text == text
    json.dumps(reply.message).encode()


async def test_half_a_surrogate_pair_is_mended_not_passed_on(client: StdioClient) -> None:
    """No server could read it: Python's JSON takes it and fails later, Rust's refuses the message."""
    id_ = client.next_id()
    client.expect(id_)
    arguments = r'{"text":"cut \ud83d here","n":1.10}'
    params = f'{{"name":"plain__raw_arguments","arguments":{arguments}}}'
    await client.write(f'{{"jsonrpc":"2.0","id":{id_},"method":"tools/call","params":{params}}}\n'.encode())
    assert (await client.answer_to(id_)).text == arguments.replace(r"\ud83d", r"\ufffd")


@pytest.mark.parametrize("id_", ["0", "-5", '"1"', "123456789012345678901234567890", '"ü / \\" id"', '""'])
async def test_the_id_of_a_request_comes_back_as_it_was_written(client: StdioClient, id_: str) -> None:
    """JSON-RPC 2.0, section 4: the same value, and its type counts."""
    client.expect(json.loads(id_))
    await client.write(f'{{"jsonrpc":"2.0","id":{id_},"method":"ping"}}\n'.encode())
    reply = await client.answer_to(json.loads(id_))
    assert f'"id":{id_}'.encode() in reply.raw.replace(b'"id": ', b'"id":')
