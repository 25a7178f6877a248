"""A call gives the same through the library, over stdio and over HTTP (issue 9): they are one engine."""

import json
import re
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mcpbridge import Bridge, RequestFailed
from mcpbridge.base.json_values import decoded
from support.harness import Place, python_server
from support.rpc import HttpClient, Reply, StdioClient

Ways = tuple[Bridge, StdioClient, HttpClient]

NAMES = st.text(max_size=6)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
BLOCKS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, st.text(max_size=40)),
    st.builds(lambda data: {"type": "image", "data": data, "mimeType": "image/png"}, st.sampled_from(["", "AAAA"])),
    st.builds(lambda uri: {"type": "resource_link", "uri": f"x://{uri}", "name": "n"}, NAMES),
    st.dictionaries(NAMES, VALUES, max_size=2).map(lambda more: {"type": "text", "text": "t", "annotations": more}),
    st.dictionaries(NAMES, VALUES, max_size=2).map(lambda more: {**more, "type": "of-tomorrow"}),
)
RESULTS = st.fixed_dictionaries(
    {"content": st.lists(BLOCKS, max_size=3)},
    optional={
        "structuredContent": st.dictionaries(NAMES, VALUES, max_size=4),
        "isError": st.booleans(),
        "of-tomorrow": VALUES,
        "_meta": st.dictionaries(st.sampled_from(["example.com/a", "b"]), VALUES, max_size=2),
    },
)
OWN = '''
def double(number: float, text: str = "x") -> dict[str, float | str]:
    """Twice as much."""
    if text == "":
        raise ValueError("there is nothing to double")
    return {"number": number * 2, "text": text * 2}
'''

HANDLE = re.compile(r"[a-z2-7]{26}")


@pytest.fixture(scope="module")
async def ways(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ways]:
    """The same configuration by all three ways; what is too large is shortened."""
    place = Place(tmp_path_factory.mktemp("same"))
    servers = {"plain": python_server("plain")}
    results = {"threshold": 1500, "budget": 800}
    tools = {"double": {"function": "own:double"}}
    (place.folder / "own.py").write_text(OWN)
    place.env["XDG_STATE_HOME"] = str(place.folder / "state")
    async with (
        place.bridge(servers, results=results, tools=tools) as stdio,
        place.http_bridge(servers, results=results, tools=tools) as http,
        Bridge.open(place.config(servers, results=results, tools=tools), remember=False) as bridge,
    ):
        for client in (stdio, http):
            await client.initialize()
            await client.tools_with("plain__raw_result")
        assert await bridge.settled(30)
        yield bridge, stdio, http
    place.clean()


async def outcomes(ways: Ways, tool: str, arguments: dict[str, Any]) -> list[Any]:
    """What each way gives, without what names this one result."""
    bridge, stdio, http = ways
    try:
        own: Any = (await bridge.call_tool(tool, arguments)).raw
    except RequestFailed as error:
        own = {"code": error.code, "message": str(error)}
    params = {"name": tool, "arguments": arguments}
    replies = [await client.request("tools/call", params, within=60) for client in (stdio, http)]
    return [plain(own), *[plain(told(reply)) for reply in replies]]


def told(reply: Reply) -> Any:
    if "error" in reply.message:
        return {name: reply.message["error"][name] for name in ("code", "message")}
    return reply.message["result"]


def plain(outcome: Any) -> Any:
    """With the names of kept results, which are random, all the same."""
    if isinstance(outcome, str):
        return HANDLE.sub("HANDLE", outcome)
    if isinstance(outcome, list):
        return [plain(one) for one in outcome]
    return {name: plain(one) for name, one in outcome.items()} if isinstance(outcome, dict) else outcome


quick = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@quick
@given(result=RESULTS)
@example(result={"content": [{"type": "text", "text": "row of many\n" * 400}]})
@example(result={"content": [], "structuredContent": {"rows": [{"id": n, "name": f"n{n}"} for n in range(200)]}})
async def test_any_result_is_the_same(ways: Ways, result: dict[str, Any]) -> None:
    first, *others = await outcomes(ways, "plain__raw_result", {"raw": json.dumps(result)})
    assert others == [first, first]


ARGUMENTS = st.dictionaries(NAMES.filter(lambda name: not name.startswith("_")), VALUES, max_size=4)
SHORT = ARGUMENTS.filter(lambda arguments: len(json.dumps(arguments)) < 1500)
"""What comes back whole: longer ones would be shortened."""


@quick
@given(arguments=SHORT)
@example(arguments={"self": 1, "tool": [2], "meta": {}, "within": "x"})
async def test_any_arguments_arrive_the_same(ways: Ways, arguments: dict[str, Any]) -> None:
    first, *others = await outcomes(ways, "plain__raw_arguments", arguments)
    assert [json.loads(one["content"][0]["text"]) for one in (first, *others)] == [arguments] * 3


@quick
@given(arguments=st.dictionaries(st.sampled_from(["number", "text", "other"]), VALUES, max_size=3))
async def test_a_function_of_ones_own_answers_and_refuses_the_same(ways: Ways, arguments: dict[str, Any]) -> None:
    first, *others = await outcomes(ways, "double", arguments)
    assert others == [first, first]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("plain__none", {}), ("none/at_all", {}), ("", {}), ("mcpbridge/recall", {"handle": "gone"})],
)
async def test_what_there_is_not_is_refused_the_same(ways: Ways, tool: str, arguments: dict[str, Any]) -> None:
    first, *others = await outcomes(ways, tool, arguments)
    assert others == [first, first]


async def test_numbers_go_as_they_came(ways: Ways) -> None:
    bridge = ways[0]
    asked = {"n": decoded(b"1e400"), "big": 2**70, "deep": [{"n": Decimal("-1e-999")}]}
    result = await bridge.call_tool("plain/raw_arguments", asked)
    assert json.loads(result.text, parse_float=Decimal, parse_int=Decimal) == asked


async def test_lists_are_the_same(ways: Ways) -> None:
    bridge, stdio, http = ways
    own = {tool.name: tool.definition["inputSchema"] for tool in await bridge.list_tools()}
    for client in (stdio, http):
        listed = (await client.request("tools/list")).result["tools"]
        assert {tool["name"]: tool["inputSchema"] for tool in listed} == own


def test_numbers_that_python_has_not_are_kept_exactly() -> None:
    """Nothing is lost: a number of a server is never an error of the program's."""
    data = b'{"a": 1e400, "b": -0, "c": 1' + b"0" * 5000 + b', "d": [1.10, 12345678901234567890123]}'
    value = decoded(data)
    assert value["a"] == Decimal("1e400")
    assert value["c"] == Decimal("1e5000")
    assert value["d"] == [1.10, 12345678901234567890123]
