"""The modern era over HTTP: headers that repeat the body, and no sessions."""

import asyncio
import base64
from typing import Any

import pytest

from mcpbridge.downstream.settings import HttpSettings
from support.http_front import LEGACY, MODERN, as_bytes, events, modern_body, modern_headers, request, said, serving


async def test_a_request_stands_alone_and_declares_its_client() -> None:
    async with serving() as http:
        meta = {"io.modelcontextprotocol/logLevel": "debug"}
        response = await http.modern("tools/call", "x", meta=meta, name="a", arguments={"b": None})
        assert response.status_code == 200
        assert response.json()["id"] == "x"
        assert response.json()["result"]["arguments"] == {"b": None}
        assert "mcp-session-id" not in response.headers
        ((client, _),) = http.core.asked
        assert (client.modern, client.version, client.log_level) == (True, MODERN, "debug")
        assert (client.info["name"], client.declared_capabilities) == ("raw", {"sampling": {}})
        assert http.core.clients == []


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"mcp_protocol_version": "2099-01-01"}, -32020),
        ({"mcp_protocol_version": LEGACY}, -32020),
        ({"mcp_method": "tools/list"}, -32020),
        ({"mcp_method": "Tools/call"}, -32020),
        ({"mcp_name": "b"}, -32020),
        ({"mcp_name": "=?base64?!!?="}, -32020),
    ],
)
async def test_headers_that_disagree_with_the_body_are_refused(headers: dict[str, str], code: int) -> None:
    """MCP 2026-07-28, transports: a proxy may have routed by them."""
    async with serving() as http:
        right = modern_headers("tools/call", {"name": "a"})
        response = await http.post(modern_body("tools/call", 3, name="a"), **right | headers)
        assert (response.status_code, response.json()["error"]["code"], response.json()["id"]) == (400, code, 3)
        assert http.core.asked == []


@pytest.mark.parametrize("missing", ["mcp_protocol_version", "mcp_method", "mcp_name"])
async def test_headers_that_are_missing_are_refused(missing: str) -> None:
    """Also the version header: the envelope alone makes a request modern."""
    async with serving() as http:
        headers = modern_headers("tools/call", {"name": "a"})
        del headers[missing]
        response = await http.post(modern_body("tools/call", name="a"), **headers)
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)


async def test_header_values_may_be_wrapped_and_end_in_blanks() -> None:
    async with serving() as http:
        wrapped = f"=?base64?{base64.b64encode('größe'.encode()).decode()}?="
        headers = modern_headers("tools/call", {}) | {"mcp_name": wrapped}
        assert (await http.post(modern_body("tools/call", name="größe"), **headers)).status_code == 200
        reader, writer = await asyncio.open_connection("127.0.0.1", int(http.root.rpartition(":")[2]))
        body = as_bytes(modern_body("echo"))
        head = (
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
            b"MCP-Protocol-Version: 2026-07-28 \t\r\nMcp-Method:  echo  \r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        writer.write(head + body)
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-method", "mcp-name"])
async def test_a_routing_header_must_not_come_twice(name: str) -> None:
    async with serving() as http:
        headers = [(key.replace("_", "-"), value) for key, value in modern_headers("tools/call", {"name": "a"}).items()]
        headers += [(key, value) for key, value in headers if key == name]
        headers += [("content-type", "application/json")]
        response = await http.client.post(http.url, json=modern_body("tools/call", name="a"), headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)


async def test_the_headers_of_arguments_reach_the_core_and_must_not_come_twice() -> None:
    """What they must say is in the definition of the tool."""
    async with serving() as http:
        right = modern_headers("tools/call", {"name": "a"})
        body = modern_body("tools/call", name="a")
        assert (await http.post(body, **right, mcp_param_Place="here", mcp_other="x")).status_code == 200
        ((client, _),) = http.core.asked
        assert client.param_headers == {"mcp-param-place": "here"}
        headers = [(key.replace("_", "-"), value) for key, value in right.items()]
        headers += [("content-type", "application/json"), ("mcp-param-a", "1"), ("Mcp-Param-A", "1")]
        response = await http.client.post(http.url, json=body, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32020)


async def test_an_unknown_revision_is_refused_with_the_known_ones() -> None:
    async with serving() as http:
        body = modern_body("echo", meta={"io.modelcontextprotocol/protocolVersion": "2099-01-01"})
        response = await http.post(body, mcp_protocol_version="2099-01-01", mcp_method="echo")
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32022)
        assert response.json()["error"]["data"] == {"supported": [MODERN], "requested": "2099-01-01"}


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"io.modelcontextprotocol/protocolVersion": MODERN},
        {"io.modelcontextprotocol/clientCapabilities": {}},
        {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": []},
    ],
)
async def test_an_incomplete_envelope_is_refused(meta: dict[str, Any]) -> None:
    async with serving() as http:
        response = await http.post(request("echo", 9, _meta=meta), **modern_headers("echo", {}))
        assert (response.status_code, response.json()["error"]["code"], response.json()["id"]) == (400, -32602, 9)


@pytest.mark.parametrize(("params", "code"), [([], -32602), ("x", -32600), (None, -32602), (1, -32600)])
async def test_params_that_are_no_object_are_refused(params: object, code: int) -> None:
    """JSON-RPC 2.0, section 4.2: they are a structured value, or it is no request at all."""
    async with serving() as http:
        body = {"jsonrpc": "2.0", "id": 1, "method": "echo", "params": params}
        assert (await http.post(body, **modern_headers("echo", {}))).json()["error"]["code"] == code


@pytest.mark.parametrize(("code", "status"), [(-32601, 404), (-32602, 400), (-32021, 400), (-32603, 200), (7, 200)])
async def test_an_error_answer_has_the_http_status_of_its_code(code: int, status: int) -> None:
    async with serving() as http:
        response = await http.modern("fail", code=code)
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)


async def test_a_legacy_error_answer_is_an_ordinary_answer() -> None:
    """The statuses are new in the modern era."""
    async with serving() as http:
        assert (await http.post(request("fail", code=-32601), **await http.session())).status_code == 200


async def test_there_is_no_get_and_no_delete() -> None:
    async with serving() as http:
        for method in ("GET", "DELETE"):
            headers = {"mcp-protocol-version": MODERN, "accept": "text/event-stream"}
            response = await http.client.request(method, http.url, headers=headers)
            assert (response.status_code, response.headers["allow"]) == (405, "POST")


async def test_a_session_id_means_nothing() -> None:
    async with serving() as http:
        headers = modern_headers("echo", {}) | {"mcp_session_id": "whatever", "last_event_id": "1-1"}
        assert (await http.post(modern_body("echo"), **headers)).status_code == 200


async def test_a_notification_is_taken_and_dropped() -> None:
    async with serving() as http:
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert (await http.post(message, mcp_protocol_version=MODERN)).status_code == 202
        refused = await http.post(message, mcp_protocol_version="2099-01-01")
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32022)
        assert http.core.notified == []


@pytest.mark.parametrize("body", [{"jsonrpc": "2.0", "id": 1, "result": {}}, [modern_body("echo")]])
async def test_answers_and_batches_do_not_exist(body: Any) -> None:
    async with serving() as http:
        response = await http.post(body, mcp_protocol_version=MODERN)
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32600)


async def test_a_stream_has_no_ids_since_nothing_can_be_resumed() -> None:
    async with serving() as http:
        response = await http.modern("say", times=2)
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["x-accel-buffering"] == "no"
        found = events(response.text)
        assert [id_ for id_, _ in found] == ["", "", ""]
        assert found[0][1] == said(0).decode()


async def test_leaving_the_response_cancels_the_call_streamed_or_not() -> None:
    """MCP 2026-07-28, transports: closing the response stream is the cancellation."""
    async with serving() as http:
        call = asyncio.create_task(http.modern("hold", 4))
        await http.core.held.get()
        call.cancel()
        assert await http.core.cancelled.get() == "4"
        async with http.stream("POST", modern_body("tell", 5), **modern_headers("tell", {})) as response:
            await anext(response.aiter_text())
        assert await http.core.cancelled.get() == "5"


async def test_a_silent_call_shows_that_it_lives() -> None:
    async with (
        serving(HttpSettings(keep_alive=0.03)) as http,
        http.stream("POST", modern_body("hold"), **modern_headers("hold", {})) as response,
    ):
        assert await anext(response.aiter_text()) == ": keep-alive\n\n"


async def test_a_subscription_is_a_stream_or_refused() -> None:
    async with serving() as http:
        listen, headers = modern_body("subscriptions/listen"), modern_headers("subscriptions/listen", {})
        assert (await http.post(listen, **headers, accept="application/json")).status_code == 406
        async with http.stream("POST", listen, **headers) as response:
            chunks = response.aiter_text()
            assert events(await anext(chunks)) == [("", said(0).decode())]
            http.core.release.set()
            assert '"result"' in await anext(chunks)


async def test_a_subscriber_that_does_not_read_is_cut_off_instead_of_missing_events() -> None:
    async with serving() as http:
        headers = modern_headers("subscriptions/listen", {})
        async with http.stream("POST", modern_body("subscriptions/listen", 2), **headers):
            notify = await http.core.held.get()
            for number in range(2000):  # without a pause, so that none of them can be read meanwhile
                notify(said(number))
            assert await http.core.cancelled.get() == "2"


async def test_a_caller_that_does_not_read_loses_the_oldest_notifications_but_not_the_answer() -> None:
    async with serving() as http:
        found = events((await http.modern("say", times=3000)).text)
        assert len(found) == 1000
        assert found[-2][1] == said(2999).decode()
        assert '"result"' in found[-1][1]


@pytest.mark.parametrize(("level", "wanted"), [("warning", "warning"), ("loud", ""), ("", "")])
async def test_a_log_level_that_nobody_knows_asks_for_no_log(level: str, wanted: str) -> None:
    async with serving() as http:
        await http.modern("echo", meta={"io.modelcontextprotocol/logLevel": level})
        assert http.core.asked[0][0].log_level == wanted
