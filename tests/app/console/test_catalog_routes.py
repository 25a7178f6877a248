"""The catalog of the console without a browser: who may do what, bad input, large catalogs (issue 20, Catalog)."""

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
import tomlkit

from mcpbridge import Bridge
from mcpbridge.app.console.sign_in import Role
from mcpbridge.config.load import load
from support.console_pages import Visitor, visiting
from support.harness import python_server
from support.in_process_bridge import bridged
from support.upstreams.scripted_upstream import LEGACY_SERVER, SILENCE, Refusal, ScriptedTransport

pytestmark = pytest.mark.anyio


def tools(*definitions: dict[str, Any], **members: Any) -> ScriptedTransport:
    listed = [{"inputSchema": {"type": "object"}, **one} for one in definitions]
    return ScriptedTransport(
        {**LEGACY_SERVER, "tools/list": {"tools": listed}, "tools/call": {"content": []}, **members}
    )


FORECAST = {
    "name": "get_forecast",
    "description": "Get the weather forecast for a city",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


async def text_of(visitor: Visitor, path: str, status: int = 200) -> str:
    answer = await visitor.get(path)
    assert answer.status_code == status, answer.text
    return answer.text


async def test_the_search_box_is_the_router_and_says_why() -> None:
    """Issue 20: type a task, see the ranking with scores and which words and vectors made it."""
    one, other = tools(FORECAST, {"name": "add"}), tools({"name": "send_mail", "description": "Send an e-mail"})
    async with bridged({"sky": one, "post": other}) as bridge, visiting(bridge) as visitor:
        page = await text_of(visitor, "/catalog?q=will+it+rain+tomorrow,+and+the+forecast")
        assert re.search(r"score\">[01]\.\d{3}<", page)
        assert page.index("sky/get_forecast") < page.index("catalog/parts/rows")
        assert "forecast" in page
        assert "nearest words" in page
        assert "What a model is answered" in page
        named = await text_of(visitor, "/catalog?q=post/send_mail")
        assert "The request names the tool" in named
        filtered = await text_of(visitor, "/catalog?q=server:post")
        assert "filters alone" in filtered
        assert "No tool seems to do that" in await text_of(visitor, "/catalog?q=paint+my+bicycle")


async def test_five_thousand_tools_are_shown_a_page_at_a_time() -> None:
    """Issue 20: 5,000 tools; each is on one page, and no page is large."""
    many = tools(*({"name": f"tool_{number:04}", "description": f"Does {number}."} for number in range(5000)))
    async with bridged({"big": many}) as bridge, visiting(bridge) as visitor:
        seen: list[str] = []
        link = "/catalog"
        while link:
            page = await text_of(visitor, link)
            assert len(page) < 200_000
            seen += re.findall(r'href="[^"]*id=big/(tool_\d+)"', page)
            following = re.search(r'rel="next" href="/console([^"]+)"', page)
            link = following[1].replace("&amp;", "&") if following else ""
        assert len(seen) == len(set(seen)) == 5000
        page = await text_of(visitor, "/catalog?name=tool_0042&server=big")
        assert "1 of tools" in page
        assert "Nothing fits" in await text_of(visitor, "/catalog?name=nonesuch")
        await text_of(visitor, "/catalog?page=99999&limit=x&kind=nothing")
        found = await text_of(visitor, "/catalog/parts/found?q=do+42")
        assert "big/tool_0042" in found


async def test_prompts_resources_and_templates_are_there_with_their_definitions() -> None:
    upstream = tools(
        FORECAST,
        **{
            "initialize": {
                **LEGACY_SERVER["initialize"],
                "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
            },
            "prompts/list": {"prompts": [{"name": "greet", "description": "Say <b>hello</b>"}]},
            "resources/list": {"resources": [{"uri": "memo://a?b=c&d#e", "name": "memo"}]},
            "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "memo://{which}", "name": "any"}]},
        },
    )
    async with bridged({"sky": upstream}) as bridge, visiting(bridge) as visitor:
        for kind, shown in (("prompts", "sky/greet"), ("resources", "memo://a?b=c"), ("templates", "memo://{which}")):
            page = await text_of(visitor, f"/catalog?kind={kind}")
            link = re.search(rf'href="/console(/catalog/entry\?kind={kind}[^"]+)"', page)
            assert link
            entry = await text_of(visitor, link[1].replace("&amp;", "&"))
            assert shown in entry
            assert "<b>" not in entry
        await text_of(visitor, "/catalog/entry?kind=prompts&id=nothing", 404)


async def test_a_tool_is_shown_as_sent_as_slimmed_and_as_each_client_sees_it() -> None:
    """Issue 20: with tokens; choose Claude Code, Cursor, Codex."""
    long = "a_tool_whose_name_is_longer_than_what_some_clients_take_of_it"
    described = {**FORECAST, "name": long, "description": "It tells. " * 60, "annotations": {"readOnlyHint": True}}
    sections = {"bridge": {"name_length": 100}, "expose": {"clients": {"few*": {"mode": "search"}}}}
    async with bridged({"sky": tools(described)}, **sections) as bridge, visiting(bridge) as visitor:
        page = await text_of(visitor, f"/catalog/tool?id=sky/{long}&client=cursor")
        assert re.search(r"Cursor", page)
        shown = re.findall(r"<dd><code>([^<]+)</code>", page)
        assert f"sky__{long}" in shown
        assert any(len(name) == 50 and name.startswith("sky__a_tool") for name in shown), "Cursor gets a shorter name"
        clients = await text_of(visitor, f"/catalog/parts/clients?id=sky/{long}")
        for title in ("Claude Code", "Cursor", "Codex", "Gemini CLI", "VS Code", "few", "Any other client"):
            assert title in clients
        assert f"mcp__mcpbridge__sky__{long}" in clients
        assert "find_tools finds it" in clients
        tokens = [
            int(one.replace(",", "")) for one in re.findall(r'number">([\d,]+)</td><td class="number">\d+ %', page)
        ]
        sent, *shorter = tokens
        assert len(tokens) == 6
        assert sent == max(tokens)
        assert shorter[:4] == sorted(shorter[:4], reverse=True)
        slim = await text_of(visitor, f"/catalog/parts/form?id=sky/{long}&level=signatures")
        assert "city" in slim
        await text_of(visitor, "/catalog/tool?id=sky/nothing", 404)
        await text_of(visitor, "/catalog/parts/clients?id=", 404)
        await text_of(visitor, f"/catalog/tool?id=sky/{long}&client=%3Cscript%3E&level=x")


async def test_what_the_policy_hides_from_a_client_is_said() -> None:
    rules = [{"tools": ["sky/get_forecast"], "clients": ["cursor*"], "permission": "deny"}]
    sections = {"permissions": rules, "expose": {"hide": ["sky/other"]}}
    async with bridged({"sky": tools(FORECAST, {"name": "other"})}, **sections) as bridge, visiting(bridge) as visitor:
        assert "denies it to this client" in await text_of(visitor, "/catalog/tool?id=sky/get_forecast&client=cursor")
        other = await text_of(visitor, "/catalog/tool?id=sky/other&client=claude-code")
        assert "expose.hide" in other
        assert "never: hidden by sky/other" in other


# -- trying a tool


async def try_it(visitor: Visitor, id_: str, **given: str) -> Any:
    """Fill the form in as its page has it, and send it."""
    page = await text_of(visitor, f"/catalog/tool?id={id_}")
    digest = re.search(r'name="schema" value="([0-9a-f]+)"', page)
    assert digest
    form = {"id": id_, "schema": digest[1], "mode": "form", **given}
    return await visitor.post("/catalog/try", data=form, headers={"hx-request": "true"})


def job_of(page: str) -> str:
    found = re.search(r"/console(/catalog/try/[\w-]+)\?seen=\d+", page)
    assert found, page
    return found[1]


async def end_of(visitor: Visitor, job: str) -> str:
    """What the page shows of a call once it is over."""
    while True:
        answer = await visitor.get(job)
        if 'data-state="running"' not in answer.text and answer.status_code == 200:
            return answer.text
        await anyio.sleep(0.01)


async def test_a_call_is_tried_with_what_was_filled_in() -> None:
    """Issue 20: a form made from its input schema; the call goes the way of every client's."""

    def echo(params: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}

    upstream = tools(FORECAST, **{"tools/call": echo})
    async with bridged({"sky": upstream}) as bridge, visiting(bridge) as visitor:
        answer = await try_it(visitor, "sky/get_forecast", **{"a.0": "Rome"})
        assert answer.status_code == 200
        shown = await end_of(visitor, job_of(answer.text))
        assert "&#34;city&#34;: &#34;Rome&#34;" in shown
        (call,) = upstream.asked("tools/call")
        assert call["params"]["arguments"] == {"city": "Rome"}
        missing = await try_it(visitor, "sky/get_forecast", **{"a.0": ""})
        assert missing.status_code == 422
        assert "city is required" in missing.text
        raw = await try_it(visitor, "sky/get_forecast", mode="raw", raw='{"city": "Bonn", "more": [1]}')
        shown = await end_of(visitor, job_of(raw.text))
        assert len(upstream.asked("tools/call")) == 2
        wrong = await try_it(visitor, "sky/get_forecast", mode="raw", raw="[1]")
        assert wrong.status_code == 422
        assert "must be a JSON object" in wrong.text


async def test_the_form_and_the_box_hold_the_same_arguments() -> None:
    members = {"n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}
    schema = {"type": "object", "properties": members}
    async with bridged({"sky": tools({"name": "t", "inputSchema": schema})}) as bridge, visiting(bridge) as visitor:
        form = {"id": "sky/t", "mode": "form", "a.0": "7", "a.1.0": "x", "a.1.4": "y"}
        raw = await visitor.post("/catalog/try/switch", data=form, headers={"hx-request": "true"})
        box = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", raw.text, re.DOTALL)
        assert box
        text = box[1].replace("&#34;", '"')
        assert json.loads(text) == {"n": 7, "tags": ["x", "y"]}
        back = await visitor.post("/catalog/try/switch", data={"id": "sky/t", "mode": "raw", "raw": text})
        assert 'value="7"' in back.text
        unfit = await visitor.post("/catalog/try/switch", data={"id": "sky/t", "mode": "raw", "raw": '{"n": "x"}'})
        assert "The form cannot hold these arguments" in unfit.text


async def test_a_call_shows_its_progress_and_is_cancelled_at_its_server() -> None:
    """Issue 20: with progress and cancel."""
    upstream = tools(FORECAST, **{"tools/call": SILENCE})
    async with bridged({"sky": upstream}) as bridge, visiting(bridge) as visitor:
        answer = await try_it(visitor, "sky/get_forecast", **{"a.0": "Rome"})
        job = job_of(answer.text)
        while not upstream.asked("tools/call"):
            await anyio.sleep(0.01)
        (call,) = upstream.asked("tools/call")
        token = call["params"]["_meta"]["progressToken"]
        upstream.line.says("notifications/progress", progressToken=token, progress=3, total=4, message="<b>soon</b>")
        shown = (await visitor.get(job)).text
        while "soon" not in shown:
            shown = (await visitor.get(job)).text
        assert 'value="0.7500"' in shown
        assert "<b>" not in shown
        seen = re.search(r"\?seen=(\d+)", shown)
        assert seen
        assert (await visitor.get(f"{job}?seen={seen[1]}")).status_code == 204, "nothing is new"
        stranger = Visitor(visitor.console, "local", "ui")
        async with stranger:
            assert (await stranger.get(job)).status_code == 404, "a call is its visitor's alone"
            assert (await stranger.post(f"{job}/cancel")).status_code == 404
        cancelled = await visitor.post(f"{job}/cancel", headers={"hx-request": "true"})
        assert 'data-state="cancelled"' in cancelled.text
        while not upstream.asked("notifications/cancelled"):
            await anyio.sleep(0.01)
        assert visitor.console.hand_calls.running == 0


async def test_what_a_tool_answers_is_shown_inert() -> None:
    """Issue 20: everything an upstream says is hostile."""
    picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    content = [
        {"type": "text", "text": "<script>window.pwned=1</script>\u202eabc\x1b[31m" + "x" * 100_000},
        {"type": "image", "mimeType": "image/png", "data": picture},
        {"type": "image", "mimeType": "image/svg+xml", "data": "PHN2Zz4="},
        {"type": "image", "mimeType": "image/png", "data": 'x" onerror="alert(1)'},
        {"type": "resource_link", "uri": "javascript:alert(1)", "name": "<b>"},
        {"type": "resource", "resource": {"uri": "a://b", "text": "<i>"}},
        {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
        {"type": "<new>", "odd": "<u>"},
    ]
    upstream = tools(FORECAST, **{"tools/call": {"content": content, "structuredContent": {"<k>": "<v>"}}})
    async with bridged({"sky": upstream}) as bridge, visiting(bridge) as visitor:
        answer = await try_it(visitor, "sky/get_forecast", **{"a.0": "Rome"})
        shown = await end_of(visitor, job_of(answer.text))
        assert re.findall(r"<(?:script|b|i|u|new|k|v)[ >]", shown) == []
        assert "⟦U+202E⟧" in shown
        assert "⟦ESC⟧" in shown
        assert shown.count("<img ") == 1
        assert f'src="data:image/png;base64,{picture}"' in shown
        assert 'href="javascript' not in shown
        assert len(shown) < 200_000


async def test_a_call_that_fails_says_why() -> None:
    upstream = tools(FORECAST, **{"tools/call": Refusal(-32000, "the <sky> fell")})
    async with bridged({"sky": upstream}) as bridge, visiting(bridge) as visitor:
        answer = await try_it(visitor, "sky/get_forecast", **{"a.0": "Rome"})
        shown = await end_of(visitor, job_of(answer.text))
        assert 'data-state="failed"' in shown
        assert "the &lt;sky&gt; fell" in shown


async def test_a_tool_that_changed_meanwhile_is_not_called_with_numbers_of_the_old_form() -> None:
    upstream = tools(FORECAST)
    async with bridged({"sky": upstream}) as bridge, visiting(bridge) as visitor:
        answer = await try_it(visitor, "sky/get_forecast", **{"a.0": "Rome", "schema": "0" * 16})
        assert answer.status_code == 422
        assert "has changed meanwhile" in answer.text
        assert upstream.asked("tools/call") == []


async def test_names_that_addresses_would_change_lead_to_their_tool() -> None:
    names = ["..", "a?b=c&d#e", "%2e%2e", "ä ö", "a+b", "x/../../y", '"><img onerror=alert(1)>']
    upstream = tools(*({"name": name} for name in names))
    async with bridged({"odd": upstream}) as bridge, visiting(bridge) as visitor:
        page = await text_of(visitor, "/catalog?server=odd")
        links = [
            link.replace("&amp;", "&") for link in re.findall(r'href="/console(/catalog/tool\?id=odd[^"]+)"', page)
        ]
        shown = {ref.id for ref in bridge.catalog.snapshot.tools.values()}
        assert len(links) == len(shown) > 3
        for link in links:
            assert 'name="schema"' in await text_of(visitor, link)
        assert "<img onerror" not in page


# -- who may do what


async def test_a_visitor_who_only_looks_sees_no_button_that_changes_something() -> None:
    """Issue 20: a read-only token changes nothing."""
    async with bridged({"sky": tools(FORECAST)}) as bridge, visiting(bridge, "read", "looker") as visitor:
        for path in ("/catalog", "/catalog?q=forecast", "/catalog/tool?id=sky/get_forecast"):
            page = await text_of(visitor, path)
            posts = re.findall(r'method="post" action="([^"]+)"', page)
            assert posts == ["/console/sign-out"], path
            assert "hx-post" not in page
        for path in ("/catalog/try", "/catalog/try/switch", "/catalog/switch", "/catalog/listing"):
            assert (await visitor.post(path, data={"id": "sky/get_forecast", "on": "0"})).status_code == 403


async def test_who_administers_over_http_switches_by_the_rules_of_the_api() -> None:
    async with (
        bridged({"sky": tools(FORECAST, {"name": "other"})}) as bridge,
        visiting(bridge, "admin", "ops") as visitor,
    ):
        done = await visitor.post("/catalog/switch", data={"id": "sky/get_forecast", "on": "0"})
        assert done.status_code == 303
        assert [ref.id for ref in bridge.catalog.snapshot.tools.values() if ref.server == "sky"] == ["sky/other"]
        (entry,) = bridge.registry.status()
        assert entry["by"] == "console:ops"
        off = await text_of(visitor, "/catalog/tool?id=sky/get_forecast")
        assert "It is switched off" in off
        assert "weather forecast" in off, "its definition as the server sent it"
        assert "get_forecast" in await text_of(visitor, "/catalog")
        await visitor.post("/catalog/switch", data={"id": "sky/get_forecast", "on": "1"})
        assert "sky__get_forecast" in bridge.catalog.snapshot.tools
        assert (await visitor.post("/catalog/switch", data={"id": "mcpbridge/recall", "on": "0"})).status_code == 400
        assert (await visitor.post("/catalog/switch", data={"id": "nope/x", "on": "0"})).status_code == 404
        unwritten = await visitor.post("/catalog/listing", data={"id": "sky/other", "listing": "pin"})
        assert unwritten.status_code == 400
        assert "no configuration file" in unwritten.text


async def test_what_the_file_switches_off_no_token_switches_on() -> None:
    servers = {"sky": {"tool": {"get_forecast": {"disabled": True}}}}
    async with bridged({"sky": tools(FORECAST)}, servers=servers) as bridge:
        async with visiting(bridge, "admin", "ops") as visitor:
            refused = await visitor.post("/catalog/switch", data={"id": "sky/get_forecast", "on": "1"})
            assert refused.status_code == 403
            assert "configuration file switches it off" in refused.text
        async with visiting(bridge) as local:
            assert (await local.post("/catalog/switch", data={"id": "sky/get_forecast", "on": "1"})).status_code == 303
            assert "sky__get_forecast" in bridge.catalog.snapshot.tools


@pytest.mark.parametrize(("role", "status"), [("local", 303), ("admin", 303), ("read", 403)])
async def test_pinning_and_hiding_change_the_file_for_whoever_may_change_servers_in_it(
    role: Role, status: int, tmp_path: Path
) -> None:
    """As on the page Servers: what runs nothing on this machine may be written by an admin, and by nobody who looks."""
    path = tmp_path / "servers.toml"
    config = {"servers": {"plain": python_server("plain")}}
    path.write_text(f"# mine\n{tomlkit.dumps(config)}")
    before = path.read_text()

    async def reload(**_: object) -> dict[str, object]:
        await bridge.reload(load(str(path), {}).settings)
        return {"ok": True}

    async with (
        Bridge.open(path, remember=False, environ={}) as bridge,
        visiting(bridge, role, reload=reload) as visitor,
    ):
        assert await bridge.settled(60)
        for listing in ("pin", "hide", "auto"):
            done = await visitor.post("/catalog/listing", data={"id": "plain/echo", "listing": listing})
            assert done.status_code == status
            if status == 403:
                assert path.read_text() == before
            else:
                assert path.read_text().startswith("# mine\n")
                assert ('pins = ["plain/echo"]' in path.read_text()) == (listing == "pin")
                assert ('hide = ["plain/echo"]' in path.read_text()) == (listing == "hide")
        off = await visitor.post("/catalog/switch", data={"id": "plain/echo", "on": "0"})
        assert off.status_code == status
        assert ("disabled = true" in path.read_text()) == (role == "local"), "who is elsewhere lays it over the file"
