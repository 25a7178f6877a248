"""Lists that are long, endless or partly faulty (issue 2, Catalog)."""

from support.harness import Place, python_server, undisturbed

HEALTHY = {"healthy": python_server("plain")}


async def test_a_bad_definition_loses_that_tool_only(place: Place) -> None:
    async with place.bridge({"bad": python_server("listings", "bad-tools"), **HEALTHY}) as client:
        await client.initialize()
        tools = await client.tools_with("bad__first")
        assert [name for name in tools if name.startswith("bad__")] == ["bad__first", "bad__last"]
        assert "healthy__echo" in await client.tools_with("healthy__echo")


async def test_all_pages_are_read_also_behind_an_empty_cursor(place: Place) -> None:
    async with place.bridge({"long": python_server("listings", "pages")}) as client:
        await client.initialize()
        tools = await client.tools_with("long__tool_0_0")
        assert tools == [f"long__tool_{page}_{n}" for page in range(3) for n in range(2)]


async def test_pages_that_lead_back_to_the_first_are_read_once(place: Place) -> None:
    async with place.bridge({"bad": python_server("listings", "cycle"), **HEALTHY}) as client:
        await client.initialize()
        async with undisturbed(client):
            tools = await client.tools_with("bad__one")
        assert [name for name in tools if name.startswith("bad__")] == ["bad__one", "bad__two"]


async def test_a_tool_that_appears_is_announced_and_callable(place: Place) -> None:
    async with place.bridge({"grows": python_server("listings", "grows"), **HEALTHY}) as client:
        capabilities = (await client.initialize())["capabilities"]
        assert capabilities["tools"]["listChanged"] is True
        await client.tools_with("healthy__echo")
        assert "grows__grown_1" not in await client.tools_with("grows__grow")
        before = len(client.arrived)
        await client.call("grows__grow")
        await client.notice("notifications/tools/list_changed", after=before)
        assert "grows__grown_1" in await client.tools()


async def test_a_tool_that_appears_is_announced_over_http_too(place: Place) -> None:
    async with place.http_bridge({"grows": python_server("listings", "grows"), **HEALTHY}) as client:
        await client.initialize()
        await client.tools_with("grows__grow")
        async with client.listening():
            await client.call("grows__grow")
            await client.tools_with("grows__grown_1")
