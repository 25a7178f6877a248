"""Resources, templates, prompts, completion, logging, progress: through the bridge, on both fronts.

The tests share one bridge a front.
"""

import contextlib
from collections.abc import AsyncIterator

import pytest

from support.harness import Place, python_server
from support.rpc import Client, HttpClient, Refused


@pytest.fixture(scope="module", params=["stdio", "http"])
async def client(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[Client]:
    """A client in session with a bridge to the rich server, its unsolicited messages arriving."""
    place = Place(tmp_path_factory.mktemp("rich"))
    servers = {"rich": python_server("rich"), "healthy": python_server("plain")}
    opened = place.http_bridge(servers) if request.param == "http" else place.bridge(servers)
    async with opened as client, contextlib.AsyncExitStack() as stack:
        capabilities = (await client.initialize())["capabilities"]
        if isinstance(client, HttpClient):
            await stack.enter_async_context(client.listening())
        assert {"tools", "resources", "prompts", "completions", "logging"} <= set(capabilities)
        await client.tools_with("rich__work")
        yield client
    place.clean()


async def test_resources_are_listed_and_read(client: Client) -> None:
    listed = (await client.request("resources/list", {})).result["resources"]
    assert [(r["uri"], r["name"]) for r in listed] == [("memo://one", "one"), ("memo://two", "two")]
    [content] = (await client.request("resources/read", {"uri": "memo://one"})).result["contents"]
    assert content == {"uri": "memo://one", "mimeType": "text/plain", "text": "content of memo://one"}


async def test_a_resource_of_a_template_is_read_from_its_server(client: Client) -> None:
    [template] = (await client.request("resources/templates/list", {})).result["resourceTemplates"]
    assert template["uriTemplate"] == "memo://page/{number}"
    [content] = (await client.request("resources/read", {"uri": "memo://page/7"})).result["contents"]
    assert content["text"] == "content of memo://page/7"


async def test_an_unknown_resource_is_refused_as_the_revision_demands(client: Client) -> None:
    with pytest.raises(Refused) as refused:
        _ = (await client.request("resources/read", {"uri": "nowhere://at-all"})).result
    assert refused.value.code == -32002
    assert "nowhere://at-all" in refused.value.message + str(refused.value.data)


async def test_a_subscriber_hears_of_an_update_until_it_unsubscribes(client: Client) -> None:
    await client.request("resources/subscribe", {"uri": "memo://one"})
    assert (await client.call("rich__touch", uri="memo://one")).text == "['memo://one']"
    await client.notice("notifications/resources/updated", lambda params: params["uri"] == "memo://one")
    await client.request("resources/unsubscribe", {"uri": "memo://one"})
    assert (await client.call("rich__touch", uri="memo://one")).text == "[]"


async def test_prompts_are_listed_and_filled(client: Client) -> None:
    [prompt] = (await client.request("prompts/list", {})).result["prompts"]
    assert prompt["name"] == "rich__greet"
    assert prompt["arguments"] == [{"name": "who", "required": True}]
    filled = (await client.request("prompts/get", {"name": "rich__greet", "arguments": {"who": "Ada"}})).result
    assert filled["messages"][0]["content"]["text"] == "Greet Ada."


@pytest.mark.parametrize(
    "ref",
    [{"type": "ref/prompt", "name": "rich__greet"}, {"type": "ref/resource", "uri": "memo://page/{number}"}],
    ids=["prompt", "template"],
)
async def test_completion_asks_the_owner(client: Client, ref: dict[str, str]) -> None:
    params = {"ref": ref, "argument": {"name": "who", "value": "a"}}
    assert (await client.request("completion/complete", params)).result["completion"]["values"] == ["a1", "a2"]


async def test_progress_comes_with_the_clients_own_token_and_in_order(client: Client) -> None:
    reply = await client.call("rich__work", meta={"progressToken": "mine"}, steps=5)
    assert reply.text == "done"
    await client.notice("notifications/progress", lambda params: params["progress"] == 5)
    seen = [m["params"] for m in client.arrived if m["method"] == "notifications/progress"]
    assert {params["progressToken"] for params in seen} == {"mine"}
    steps = [params["progress"] for params in seen]
    assert steps == sorted(set(steps)), "progress only grows"
    before = len(client.arrived)
    await client.call("rich__work", steps=2)
    assert not [m for m in client.arrived[before:] if m["method"] == "notifications/progress"]


async def test_log_messages_come_from_the_level_asked_for(client: Client) -> None:
    await client.request("logging/setLevel", {"level": "warning"})
    await client.call("rich__say", level="debug")
    await client.call("rich__say", level="error")
    said = await client.notice("notifications/message", lambda params: params["data"] == "said")
    assert said["params"]["level"] == "error"
    assert "rich" in said["params"]["logger"]


async def test_a_tool_has_several_names_and_an_unknown_one_gets_the_nearest(client: Client) -> None:
    for name in ("rich__touch", "rich/touch", "rich.touch", "touch"):
        assert (await client.call(name, uri="memo://one")).text == "[]"
    with pytest.raises(Refused, match="rich__touch") as refused:
        _ = (await client.call("rich__tuch")).result
    assert refused.value.code == -32602
    with pytest.raises(Refused, match="healthy__echo"):  # both servers have one
        _ = (await client.call("echo", text="whose?")).result
