"""A list that fails, hangs or changes unheard takes nothing else away (issue 2, Catalog)."""

import json

import pytest

from support.harness import Place, eventually, python_server, undisturbed
from support.rpc import Client

HEALTHY = {"healthy": python_server("plain")}


async def test_a_list_that_never_comes_does_not_hold_back_the_other_lists(place: Place) -> None:
    servers = {"odd": python_server("odd", "hides-prompts"), **HEALTHY}
    async with place.bridge(servers) as client:
        await client.initialize()
        async with undisturbed(client):
            assert "odd__echo" in await client.tools_with("odd__echo")
            assert (await client.call("odd__echo", text="here")).text == "here"
        status = await place.run("status", "--json")
    [running] = json.loads(status.out)["bridges"]
    [odd] = [server for server in running["servers"] if server["name"] == "odd"]
    assert (odd["state"], odd["reason"], odd["restarts"]) == ("ready", "", 0)


@pytest.mark.parametrize("page", ["first", "second"])
async def test_tools_stay_listed_and_callable_when_they_cannot_be_listed_again(place: Place, page: str) -> None:
    servers = {"odd": python_server("odd", "breaks-list"), "grows": python_server("listings", "grows")}
    async with place.bridge(servers) as client:
        await client.initialize()
        await client.tools_with("grows__grow")
        before = await client.tools_with("odd__of_page_two")
        asked = await pages_asked(client)
        await client.call("odd__break_list", page=page)
        wanted = asked + (1 if page == "first" else 2)
        await eventually(lambda: pages_asked(client), lambda count: count >= wanted)
        # The list in which this change is seen was made after the other server's came to nothing.
        await client.call("grows__grow")
        after = await client.tools_with("grows__grown_1")
        assert set(after) == {*before, "grows__grown_1"}
        assert (await client.call("odd__of_page_two")).text == "here"


async def pages_asked(client: Client) -> int:
    """How many pages of tools the odd server was asked for."""
    journal = json.loads((await client.call("odd__journal")).text)
    return len([m for m in journal if m.get("method") == "tools/list"])


async def test_a_tool_that_appears_before_the_bridge_listens_is_listed_all_the_same(place: Place) -> None:
    async with place.bridge({"odd": python_server("odd", "grows-unheard")}) as client:
        await client.initialize()
        assert "odd__unheard" in await client.tools_with("odd__unheard")
