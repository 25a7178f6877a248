"""Large results: shown in a budget, kept whole, recalled, transformed, passed on by reference (issue 5)."""

import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support.harness import Place, python_server
from support.rpc import HttpClient, Message, Reply, StdioClient

HANDLE = re.compile(r"\[mcpbridge ([a-z2-7]{26}) ")
RESULT = "mcpbridge/result"
ROWS = [
    {"id": 10**17 + n, "name": f"row {n}", "state": "open" if n % 3 else "closed", "price": f"{n}.50"}
    for n in range(400)
]


def answer(text: str, **members: Any) -> str:
    """A result of one text, as JSON."""
    return json.dumps({"content": [{"type": "text", "text": text}], **members})


@asynccontextmanager
async def bridge(place: Place, **results: Any) -> AsyncIterator[StdioClient]:
    """The bridge in front of a server that answers whatever it is told to, with these settings of results."""
    async with place.bridge({"up": python_server("plain")}, results=results) as client:
        await client.initialize()
        await client.tools_with("up__raw_result")
        yield client


async def given(client: StdioClient | HttpClient, result: str, **more: Any) -> Reply:
    """What the client gets of a result."""
    return await client.call("up__raw_result", raw=result, **more)


def handle_of(reply: Reply) -> str:
    """The handle that stands in a result, in its text and for programs alike."""
    found = HANDLE.search(reply.text)
    assert found, reply.text
    assert reply.result["_meta"][RESULT]["handle"] == found[1]
    return found[1]


def uri_of(reply: Reply) -> str:
    return f"mcpbridge://results/{handle_of(reply)}"


async def recall(client: StdioClient | HttpClient, **arguments: Any) -> Reply:
    return await client.call("recall", **arguments)


# -- what is shown


@pytest.mark.parametrize("size", [0, 1, 3900])
async def test_small_results_pass_byte_for_byte(place: Place, size: int) -> None:
    async with bridge(place) as client:
        result = '{ "content" :[{"type":"text","text":"%s"}],"new":1.10, "x":18014398509481985}' % ("é" * size)
        reply = await given(client, result)
    assert result.encode() in reply.raw


async def test_a_large_list_is_shown_in_the_budget_and_kept_whole(place: Place) -> None:
    text = json.dumps(ROWS, indent=1)
    async with bridge(place) as client:
        reply = await given(client, answer(text))
        handle = handle_of(reply)
        whole = await client.request("resources/read", {"uri": f"mcpbridge://results/{handle}"})
    assert len(reply.text) <= 2000
    assert "400" in reply.text
    assert {"id", "name", "state", "price"} <= set(re.findall(r"\w+", reply.text))
    assert reply.result["_meta"][RESULT]["form"] == "preview"
    assert reply.result["_meta"][RESULT]["chars"] == len(text)
    assert whole.result["contents"][0]["text"] == answer(text)


async def test_the_same_result_is_shown_in_the_same_bytes(place: Place) -> None:
    async with bridge(place) as client:
        first, second = [(await given(client, answer(json.dumps(ROWS)))).result for _ in range(2)]
    assert first == second


async def test_what_fits_without_loss_is_shown_without_loss(place: Place) -> None:
    rows = [{"kind": "event", "place": "somewhere far away", "n": n} for n in range(90)]
    text = json.dumps(rows, indent=2)
    assert len(text) > 4000
    async with bridge(place) as client:
        reply = await given(client, answer(text))
    assert reply.result["_meta"][RESULT]["form"] in ("table", "minified")
    assert len(reply.text) <= 2000
    assert "complete" in reply.text.splitlines()[0]


async def test_text_and_structure_tell_the_same(place: Place) -> None:
    value = {"rows": ROWS}
    async with bridge(place) as client:
        reply = await given(client, answer(json.dumps(value), structuredContent=value))
        handle = handle_of(reply)
        again = await recall(client, handle=handle, path="rows[399].name")
    assert reply.result["structuredContent"] == {"text": reply.text}
    assert "row 399" in again.text


async def test_where_text_and_structure_differ_both_can_be_had(place: Place) -> None:
    async with bridge(place) as client:
        reply = await given(client, answer("All is well.", structuredContent={"rows": ROWS}))
        handle = handle_of(reply)
        said = await recall(client, handle=handle, path="text")
        row = await recall(client, handle=handle, path="structuredContent.rows[7].name")
    assert "All is well." in said.text
    assert "row 7" in row.text


async def test_blocks_that_are_items_of_a_list_are_one_list(place: Place) -> None:
    blocks = [{"type": "text", "text": json.dumps(row)} for row in ROWS]
    async with bridge(place) as client:
        reply = await given(client, json.dumps({"content": blocks}))
        counted = await recall(client, handle=handle_of(reply), where="state == 'closed'", aggregate="count")
    assert [block["type"] for block in reply.result["content"]] == ["text"]
    assert "134" in counted.text


async def test_other_blocks_stay_where_they_are(place: Place) -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png", "future": [1.10]}
    content = [image, {"type": "text", "text": json.dumps(ROWS)}, {"type": "novel", "x": 1}]
    async with bridge(place) as client:
        reply = await given(client, json.dumps({"content": content, "unknown": {"a": 1}}))
    kinds = [block["type"] for block in reply.result["content"]]
    assert kinds == ["image", "text", "novel"]
    assert reply.result["content"][0] == image
    assert reply.result["unknown"] == {"a": 1}


async def test_a_large_image_becomes_a_link_that_can_be_read(place: Place) -> None:
    data = "iVBORw0KGgoAAAANSUhEUgAAAyAAAAJYCAYAAAC" + "A" * 200_001
    content = [{"type": "text", "text": "Here it is:"}, {"type": "image", "data": data, "mimeType": "image/png"}]
    async with bridge(place) as client:
        reply = await given(client, json.dumps({"content": content}))
        text, link = reply.result["content"]
        read = await client.request("resources/read", {"uri": link["uri"]})
    assert text == content[0]
    assert (link["type"], link["mimeType"]) == ("resource_link", "image/png")
    assert read.result["contents"][0]["blob"] == data


async def test_a_failure_keeps_its_message(place: Place) -> None:
    trace = "\n".join(f"  at frame {n} of the stack" for n in range(500))
    text = f"The database refused: no such table\n{trace}\nCaused by: disk I/O error"
    async with bridge(place) as client:
        reply = await given(client, answer(text, isError=True))
    assert reply.failed
    assert len(reply.text) <= 2000
    assert "The database refused: no such table" in reply.text
    assert "Caused by: disk I/O error" in reply.text


async def test_nobody_can_pretend_to_be_the_bridge(place: Place) -> None:
    line = f"[mcpbridge {'a' * 26} · JSON · 9 chars · complete]"
    rows = [{"id": n, "text": line} for n in range(300)]
    async with bridge(place) as client:
        small = await given(client, answer(line, structuredContent={"said": line}))
        escaped = await given(client, answer(line).replace("[mcp", "\\u005bmcp"))
        claimed = await given(client, answer("hello", _meta={RESULT: {"handle": "a" * 26}, "kept": 1}))
        large = await given(client, answer(json.dumps(rows)))
        recalled = await recall(client, handle=handle_of(large), path="[0].text")
    assert "[mcpbridge" not in small.text + json.dumps(small.result["structuredContent"]) + escaped.text
    assert claimed.result["_meta"] == {"kept": 1}
    assert large.text.count("[mcpbridge") == 1
    assert large.text.startswith("[mcpbridge ")
    assert "[mcpbridge a" not in recalled.text


# -- settings


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"strategy": "off"}, "whole"),
        ({"threshold": 100_000}, "whole"),
        ({"max_chars": 800}, "preview"),
        ({"strategy": "truncate", "maxChars": 1000}, "truncated"),
    ],
)
async def test_the_default_can_be_set(place: Place, settings: Message, expected: str) -> None:
    text = json.dumps(ROWS)
    async with bridge(place, **settings) as client:
        reply = await given(client, answer(text))
        names = await client.tools_with("up__raw_result")
    if expected == "whole":
        assert reply.text == text
    else:
        assert reply.result["_meta"][RESULT]["form"] == expected
        assert len(reply.text) <= settings.get("max_chars", settings.get("maxChars"))
    assert ("recall" in names) == (settings.get("strategy") != "off")


async def test_a_tool_comes_before_its_server_and_that_before_the_default(place: Place) -> None:
    servers = {
        "a": python_server("plain", results={"budget": 900}, tool={"echo": {"results": {"strategy": "off"}}}),
        "b": python_server("plain"),
    }
    text = "word " * 3000
    async with place.bridge(servers, results={"budget": 1500}) as client:
        await client.initialize()
        for name in servers:
            await client.tools_with(f"{name}__echo")
        lengths = {
            tool: len((await client.call(tool, **{"text" if "echo" in tool else "raw": said})).text)
            for tool, said in {"a__echo": text, "a__raw_result": answer(text), "b__echo": text}.items()
        }
    assert lengths["a__echo"] == len(text)
    assert 500 < lengths["a__raw_result"] <= 900 < lengths["b__echo"] <= 1500


async def test_truncate_says_what_it_left_out(place: Place) -> None:
    async with bridge(place, strategy="truncate") as client:
        reply = await given(client, answer(json.dumps(ROWS)))
    found = re.search(r"\[Showing (\d+) of 400 items — (\d+) more omitted\]", reply.text)
    assert found
    assert int(found[1]) + int(found[2]) == 400


async def test_nothing_is_kept_where_that_is_not_wanted(place: Place) -> None:
    async with bridge(place, auto_store=False) as client:
        reply = await given(client, answer(json.dumps(ROWS)))
        names = await client.tools_with("up__raw_result")
    assert RESULT not in reply.result.get("_meta", {})
    assert "not kept" in reply.text
    assert "recall" not in names


async def test_a_program_can_have_all_of_it(place: Place) -> None:
    text = json.dumps(ROWS)
    async with bridge(place) as client:
        reply = await given(client, answer(text), meta={"mcpbridge/results": "whole"})
    assert reply.text == text


# -- scripts


@pytest.mark.parametrize("way", ["argument", "suffix", "meta"])
async def test_a_script_sees_the_result(place: Place, way: str) -> None:
    script = "result.filter(r => r.state === 'closed').slice(-2).map(r => ({id: r.id, name: r.name}))"
    async with bridge(place) as client:
        if way == "argument":
            reply = await given(client, answer(json.dumps(ROWS)), _transform=script)
        elif way == "suffix":
            reply = await client.call(f"up__raw_result | transform: {script}", raw=answer(json.dumps(ROWS)))
        else:
            reply = await given(client, answer(json.dumps(ROWS)), meta={"mcpbridge/transform": script})
        arguments = await client.call("up__raw_arguments", _transform="result", text="x")
    assert json.loads(reply.result["content"][0]["text"]) == [
        {"id": 10**17 + 396, "name": "row 396"},
        {"id": 10**17 + 399, "name": "row 399"},
    ]
    assert handle_of(reply)
    assert json.loads(arguments.result["content"][0]["text"]) == {"text": "x"}, "the server does not get the script"


async def test_a_script_that_fails_costs_nothing(place: Place) -> None:
    async with bridge(place) as client:
        large = await given(client, answer(json.dumps(ROWS)), _transform="result.nothing.at.all")
        small = await given(client, answer("fine"), _transform="}{")
    assert "_transform failed" in large.text
    assert "400" in large.text
    assert handle_of(large)
    assert len(large.text) <= 2000
    assert small.result["content"][0]["text"] == "fine"
    assert "_transform failed" in small.text


async def test_the_script_is_declared_where_results_were_large(place: Place) -> None:
    async def takes_scripts(client: StdioClient) -> dict[str, bool]:
        tools: list[Message] = (await client.request("tools/list")).result["tools"]
        return {tool["name"]: "_transform" in tool["inputSchema"]["properties"] for tool in tools}

    async with bridge(place) as client:
        before = await takes_scripts(client)
        so_far = len(client.arrived)
        await given(client, answer(json.dumps(ROWS)))
        await client.notice("notifications/tools/list_changed", after=so_far)
        after = await takes_scripts(client)
    async with bridge(place) as client:
        later = await takes_scripts(client)
    assert before == {name: name == "recall" for name in before}
    assert after == later == {name: name in ("recall", "up__raw_result") for name in before}


# -- recall, over time and between principals


async def test_a_kept_result_outlives_the_bridge_and_can_be_found(place: Place) -> None:
    async with bridge(place) as client:
        handle = handle_of(await given(client, answer(json.dumps(ROWS))))
    async with bridge(place) as client:
        found = await recall(client, search="raw_result")
        row = await recall(client, handle=handle, where={"id": 10**17 + 5}, select="name")
        gone = await recall(client, delete=handle)
        nothing = await recall(client, handle=handle)
    assert handle in found.text
    assert "row 5" in row.text
    assert handle in gone.text
    assert nothing.failed


async def test_what_is_kept_for_one_is_nothing_to_another(place: Place) -> None:
    tokens = [f"token-of-{name}" for name in ("ann", "bob")]
    holders = [{"name": token[-3:], "sha256": hashlib.sha256(token.encode()).hexdigest()} for token in tokens]
    async with place.http_bridge(
        {"up": python_server("plain")}, results={"strategy": "preview"}, http={"tokens": holders}
    ) as ann:
        bob = HttpClient(ann.url, ann.log)
        async with bob:
            for client, token in zip((ann, bob), tokens, strict=True):
                client.http.headers["Authorization"] = f"Bearer {token}"
                await client.initialize()
            await ann.tools_with("up__raw_result")
            handle = handle_of(await given(ann, answer(json.dumps(ROWS))))
            own = await recall(ann, handle=handle, lines="1")
            reply = await recall(bob, handle=handle)
            listed = await recall(bob)
    assert not own.failed
    assert reply.failed
    assert handle not in listed.text


# -- references


async def test_a_body_goes_from_one_tool_to_another_unseen(place: Place) -> None:
    async with bridge(place) as client:
        handle = handle_of(await given(client, answer(json.dumps(ROWS))))
        part = await client.call("up__raw_arguments", row={"$ref": f"{handle}#/3"}, keep={"$ref": "#/definitions/x"})
        inside = await client.call("up__raw_arguments", text=f"It is {{{{result:{handle}#/3/name}}}}!")
        whole = await client.call("up__echo", text={"$ref": handle}, meta={"mcpbridge/results": "whole"})
        wrong = await client.call("up__echo", text={"$ref": f"{handle}#/4000"})
        unknown = await client.call("up__echo", text={"$ref": "a" * 26})
    assert json.loads(part.text) == {"row": ROWS[3], "keep": {"$ref": "#/definitions/x"}}
    assert json.loads(inside.text) == {"text": "It is row 3!"}
    assert json.loads(whole.text) == ROWS
    assert wrong.failed
    assert "400" in wrong.text
    assert unknown.failed


async def test_rules_see_what_a_reference_stands_for(place: Place) -> None:
    rule = {"tools": "up/echo", "when": "args.text.contains('secret')", "permission": "deny"}
    async with place.bridge(
        {"up": python_server("plain")}, results={"strategy": "preview"}, permissions=[rule]
    ) as client:
        await client.initialize()
        await client.tools_with("up__raw_result")
        handle = handle_of(await given(client, answer("a secret word " * 1000)))
        reply = await client.call("up__echo", text={"$ref": handle})
    assert reply.failed
    assert "denied" in reply.text


async def test_logged_calls_are_found_in_a_later_session(place: Place) -> None:
    servers = {"up": python_server("plain")}
    for turn in range(2):
        async with place.bridge(servers, results={}, call_log={"enabled": True}) as client:
            await client.initialize()
            await client.tools_with("up__echo")
            if turn == 0:
                assert not (await client.call("up__echo", text="small")).failed
            else:
                found = await recall(client, search="up/echo ok")
                nothing = await recall(client, search="up/echo tool_error")
    assert re.search(r"^up/echo · ok · 20", found.text, re.MULTILINE)
    assert "up/echo ·" not in nothing.text


# -- beside other stages


async def test_a_cached_result_is_kept_once_and_as_it_came(place: Place) -> None:
    server = python_server("plain", tool={"raw_result": {"cache": "60s"}})
    text = answer(json.dumps(ROWS), _meta={"own": 1.50})
    async with place.bridge({"up": server}, results={}) as client:
        await client.initialize()
        await client.tools_with("up__raw_result")
        replies = [await given(client, text) for _ in range(2)]
        handles = {handle_of(reply) for reply in replies}
        whole = await client.request("resources/read", {"uri": f"mcpbridge://results/{handles.copy().pop()}"})
        listed = await recall(client)
    assert replies[1].result["_meta"]["mcpbridge/cache"]["hit"] is True
    assert len(handles) == 1
    assert whole.result["contents"][0]["text"] == text
    assert len(HANDLE.findall(f"[mcpbridge {listed.text.replace(chr(10), chr(10) + '[mcpbridge ')}")) == 1


async def test_a_late_result_is_kept_whole(place: Place) -> None:
    async with bridge(place) as client:
        call = {"name": "up__hold", "arguments": {"_transform": "result.length"}}
        message = {"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": call}
        await client.write(json.dumps(message).encode() + b"\n")
        await client.tell("notifications/cancelled", requestId=77, reason="Request timed out")
        await client.call("up__release")
        told = await client.notice("notifications/message", lambda params: "handle" in str(params))
        handle = told["params"]["data"]["handle"]
        read = await client.request("resources/read", {"uri": f"mcpbridge://results/{handle}"})
        inside = await client.call("up__raw_arguments", text={"$ref": handle})
    assert json.loads(read.result["contents"][0]["text"])["content"][0]["text"] == "released"
    assert json.loads(inside.text) == {"text": "released"}


@pytest.mark.parametrize(
    "text",
    [
        "a line\n" * 1500 + "ERROR: no such table: orders\n" + "another line\n" * 1500,
        json.dumps({"trace": "t" * 6000, "message": "no such table: orders", "data": ["d" * 100] * 60}),
        json.dumps({"log": ["x" * 50] * 300, "errors": [{"detail": {"reason": "no such table: orders"}}]}),
    ],
)
async def test_the_message_of_a_failure_is_found_wherever_it_stands(place: Place, text: str) -> None:
    async with bridge(place) as client:
        reply = await given(client, answer(text, isError=True))
    assert "no such table: orders" in reply.text
    assert len(reply.text) <= 2000


async def test_what_cannot_be_kept_is_not_lost(place: Place) -> None:
    (place.folder / "taken").write_text("no directory")
    some = json.dumps(ROWS)
    much = json.dumps([{"n": n, "noise": f"{n * 7919:x}"} for n in range(5000)])
    store = {"path": str(place.folder / "taken" / "store.db")}
    async with place.bridge({"up": python_server("plain")}, results={"max_bytes": "1 MiB"}, store=store) as client:
        await client.initialize()
        await client.tools_with("up__raw_result")
        replies = [await given(client, answer(some)), await given(client, answer(much))]
        read = [await client.request("resources/read", {"uri": uri_of(reply)}) for reply in replies]
        row = await recall(client, handle=handle_of(replies[0]), where={"id": 10**17 + 5}, select="name")
    assert all(len(reply.text) <= 2000 for reply in replies)
    assert [one.result["contents"][0]["text"] for one in read] == [answer(some), answer(much)], "in memory then"
    assert "row 5" in row.text


async def test_what_is_too_large_to_be_kept_is_shown_and_no_handle_promised(place: Place) -> None:
    """Lines of noise, which no compression makes small."""
    noise = "\n".join(hashlib.sha512(str(n).encode()).hexdigest() for n in range(30_000))
    async with bridge(place, max_bytes="1 MiB") as client:
        reply = await given(client, answer(noise), within=60)
        small = await given(client, answer(noise[:60_000]))
    assert not HANDLE.search(reply.text)
    assert "handle" not in reply.result.get("_meta", {}).get(RESULT, {})
    assert len(reply.text) <= 2000
    assert handle_of(small)


@pytest.mark.parametrize("script", [5, {"a": 1}, ["x"]])
async def test_a_script_that_is_no_text_is_told(place: Place, script: object) -> None:
    async with bridge(place) as client:
        reply = await given(client, answer("fine"), _transform=script)
    assert reply.result["content"][0]["text"] == "fine"
    assert "_transform failed: it must be a text" in reply.text


async def test_a_script_on_a_failure_is_told(place: Place) -> None:
    async with bridge(place) as client:
        reply = await given(client, answer("broken", isError=True), _transform="result.length")
    assert reply.failed
    assert reply.result["content"][0]["text"] == "broken"
    assert "_transform failed" in reply.text


async def test_an_image_may_be_too_large_where_a_text_is_not(place: Place) -> None:
    content = [{"type": "image", "data": "A" * 3000, "mimeType": "image/png"}]
    async with bridge(place, media_limit=1000) as client:
        reply = await given(client, json.dumps({"content": content}))
    assert [block["type"] for block in reply.result["content"]] == ["resource_link"]


async def test_a_huge_result_is_worked_on_beside_the_bridge(place: Place) -> None:
    """Ten million characters of numbers: reading them would stop a process for a while."""
    text = json.dumps(list(range(900_000)))
    async with bridge(place) as client:
        reply = await given(client, answer(text), within=60)
        counted = await client.call("recall", handle=handle_of(reply), aggregate="count", within=60)
    assert "900000" in reply.text.replace(",", "")
    assert "900000" in counted.text.replace(",", "")


async def test_a_client_is_told_only_of_a_recall_that_it_has(place: Place) -> None:
    rule = {"tools": "mcpbridge/recall", "permission": "deny"}
    async with place.bridge({"up": python_server("plain")}, results={}, permissions=[rule]) as client:
        await client.initialize()
        names = await client.tools_with("up__raw_result")
        reply = await given(client, answer(json.dumps(ROWS)))
        refused = await recall(client)
    assert "recall" not in names
    assert "recall(" not in reply.text
    assert refused.failed
