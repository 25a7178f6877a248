"""HTTP services as tools: what is sent, what is made of answers, and what is refused while loading."""

import base64
import gzip
import json
import ssl
import zlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
import trustme
from pydantic import ValidationError

from mcpbridge.base.errors import (
    ArgumentsRefused,
    UnknownName,
    UpstreamGarbled,
    UpstreamGone,
    UpstreamHttpError,
    UpstreamUnavailable,
)
from mcpbridge.pipeline.stages.retry import why_again
from mcpbridge.tools.factory import read_settings
from mcpbridge.tools.http.backend import HttpBackend
from mcpbridge.tools.http.settings import HttpToolSettings
from support.backends.backend_calls import SECRET, call_of, made, result, text_of
from support.upstreams.scripted_http import Ask, HttpServer, closed_port, http_server, reply

Answer = bytes | Callable[[Ask], bytes | None]


@asynccontextmanager
async def service(answer: Answer, **options: Any) -> AsyncGenerator[tuple[HttpServer, str]]:
    """A service that answers so, and its origin."""

    async def script(ask: Ask) -> bytes | None:
        return answer if isinstance(answer, bytes) else answer(ask)

    async with http_server(script, **options) as server:
        yield server, server.url.removesuffix("/mcp")


@asynccontextmanager
async def tool(endpoint: str, **settings: Any) -> AsyncGenerator[HttpBackend]:
    """A backend that runs."""
    backend = cast("HttpBackend", made("weather", "http", endpoint=endpoint, **settings))
    async with backend.running(lambda: None):
        yield backend


async def told(answer: bytes, arguments: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    """The result of a tool whose service answers so."""
    async with service(answer) as (_, origin), tool(f"{origin}/x", **settings) as backend:
        return await result(backend, "weather", arguments or {})


def wrong(**settings: Any) -> str:
    """Why these settings are refused."""
    with pytest.raises(ValidationError) as refused:
        HttpToolSettings.model_validate({"endpoint": "https://api.example.com/v1", **settings})
    return str(refused.value)


async def test_everything_of_a_request_can_come_from_arguments() -> None:
    async with (
        service(reply({"ok": True})) as (server, origin),
        tool(
            f"{origin}/v1/{{city}}/days?lang={{lang?}}&fixed=a b",
            method="post",
            params={"units": "metric", "q": "{city}", "tags": ["x", "{lang?}"]},
            headers={"X-Trace": "t-{trace?}", "Authorization": f"Bearer {SECRET}"},
            body={"days": "{days}", "said": "in {city}", "deep": [{"all": "{extra?}"}], "{city}": "kept"},
        ) as backend,
    ):
        definition = backend.tools[0]
        assert definition["inputSchema"] == {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "lang": {"type": "string"},
                "trace": {"type": "string"},
                "days": {},
                "extra": {},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        }
        assert definition["annotations"]["readOnlyHint"] is False
        assert backend.condition.state == "ready"
        got = await result(backend, "weather", {"city": "São/Paulo?", "days": 3})
        assert got == {"content": [{"type": "text", "text": '{"ok":true}'}], "structuredContent": {"ok": True}}
        ask = server.asks[0]
        assert ask.method == "POST"
        assert ask.path == "/v1/S%C3%A3o%2FPaulo%3F/days?fixed=a%20b&units=metric&q=S%C3%A3o%2FPaulo%3F&tags=x"
        assert ask.message == {"days": 3, "said": "in São/Paulo?", "deep": [{}], "{city}": "kept"}
        assert "x-trace" not in ask.headers
        assert ask.headers["authorization"] == f"Bearer {SECRET}"
        assert ask.headers["content-type"] == "application/json"
        with pytest.raises(ArgumentsRefused, match="`days` is missing"):
            await result(backend, "weather", {"city": "x"})
        with pytest.raises(ArgumentsRefused, match="line breaks"):
            await result(backend, "weather", {"city": "x", "days": 1, "trace": "a\r\nX-Evil: 1"})
        assert len(server.asks) == 1


@pytest.mark.parametrize(
    ("method", "sent", "body"),
    [("GET", "/x?a=1&b=x&b=y", b""), ("DELETE", "/x?a=1&b=x&b=y", b""), ("PUT", "/x", b'{"a":1,"b":["x","y"]}')],
)
async def test_arguments_without_a_place_go_into_the_query_or_the_body(method: str, sent: str, body: bytes) -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}}
    async with (
        service(reply(status=204)) as (server, origin),
        tool(f"{origin}/x", method=method, input_schema=schema) as backend,
    ):
        got = await result(backend, "weather", {"a": 1, "b": ["x", "y"], "c": None})
        assert "204" in text_of(got)
        assert (server.asks[0].path, server.asks[0].body) == (sent, body)
        assert backend.tools[0]["annotations"].get("destructiveHint", False) is (method == "DELETE")


async def test_mappings_stand_between_arguments_and_request_and_between_answer_and_result() -> None:
    weather = {"main": {"temp": 21.50, "all": [1, 2]}, "id": 90000000000000000001}
    async with (
        service(reply(weather)) as (server, origin),
        tool(
            f"{origin}/{{city}}",
            input_mapping={"city": "$.place.city", "when": "$.times[*].day"},
            output_mapping={"degrees": "$.main.temp", "id": "$.id", "none": "$.missing"},
            output_schema={"type": "object", "properties": {"degrees": {"type": "number"}}, "required": ["degrees"]},
        ) as backend,
    ):
        arguments = {"place": {"city": "Rome"}, "times": [{"day": "mo"}, {"day": "tu"}], "unsent": 1}
        got = await result(backend, "weather", arguments)
        assert got["structuredContent"] == {"degrees": 21.5, "id": 90000000000000000001}
        assert json.loads(text_of(got)) == got["structuredContent"]
        assert server.asks[0].path == "/Rome?when=mo&when=tu"
        with pytest.raises(ArgumentsRefused, match="`city` is missing"):
            await result(backend, "weather", {})


async def test_an_answer_that_is_not_as_the_tool_promises_is_an_error() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert "$" not in text_of(await told(reply({"a": 1}), output_schema=schema))
    bad = await told(reply({"a": "one"}), output_schema=schema)
    assert bad["isError"] is True
    assert "output_schema" in text_of(bad)
    nothing = await told(reply({"a": 1}), output_mapping="$.b")
    assert nothing["isError"] is True
    assert "$.b" in text_of(nothing)
    text = await told(reply(b"plain", content_type="text/plain"), output_mapping="$.b")
    assert "no JSON" in text_of(text)
    listed = await told(reply(b"[1, 2]"), output_schema={"type": "array", "items": {"type": "integer"}})
    assert listed["structuredContent"] == {"result": [1, 2]}


PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.mark.parametrize(
    ("body", "media_type", "expected"),
    [
        (b'{\n "a": 1E4, "b": [\n1.10]\n}', "application/problem+json", {"text": '{"a":1E4,"b":[1.10]}'}),
        (b"[1, 2]", "application/json; charset=utf-8", {"text": "[1,2]"}),
        (b"{broken", "application/json", {"text": "{broken"}),
        ("Grüße".encode("latin-1"), "text/plain; charset=ISO-8859-1", {"text": "Grüße"}),
        (b"<p>hi</p>", "text/html; charset=no-such", {"text": "<p>hi</p>"}),
        (b"a: 1", "application/yaml", {"text": "a: 1"}),
        (b"", "text/plain", {}),
        (PNG, "image/png", {"type": "image", "mimeType": "image/png", "data": base64.b64encode(PNG).decode()}),
        (b"RIFF", "audio/wav", {"type": "audio", "mimeType": "audio/wav", "data": "UklGRg=="}),
    ],
)
async def test_answers_become_content_by_their_type(body: bytes, media_type: str, expected: dict[str, Any]) -> None:
    got = await told(reply(body, content_type=media_type))
    (block,) = got["content"]
    assert expected.items() <= block.items()
    assert "isError" not in got
    assert ("structuredContent" in got) == ("problem" in media_type)


async def test_bytes_become_a_resource_whose_address_tells_no_secret() -> None:
    async with (
        service(reply(b"\0\1", content_type="application/zip")) as (_, origin),
        tool(f"{origin}/{SECRET}/x?k={SECRET}") as backend,
    ):
        got = await result(backend, "weather", {})
    resource = got["content"][0]["resource"]
    assert (resource["mimeType"], resource["blob"]) == ("application/zip", "AAE=")
    assert SECRET not in json.dumps(got)


async def test_a_service_that_repeats_our_secret_does_not_tell_it() -> None:
    for answer in (reply({"headers": {"auth": SECRET}}), reply(SECRET.encode(), content_type="text/plain")):
        assert SECRET not in json.dumps(await told(answer))
    assert SECRET not in json.dumps(await told(reply({"was": SECRET}, status=400)))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 501])
async def test_a_failure_that_stays_one_is_a_result_with_the_services_words(status: int) -> None:
    got = await told(reply({"detail": [{"loc": ["days"], "msg": "too many"}]}, status=status))
    assert got["isError"] is True
    assert text_of(got).startswith(f"HTTP {status}")
    assert "too many" in text_of(got)
    assert ("credentials" in text_of(got)) == (status == 401)


@pytest.mark.parametrize(("status", "wait"), [(429, "7"), (503, "7"), (500, ""), (502, ""), (408, "")])
async def test_a_failure_that_may_pass_is_raised_for_the_pipeline_to_try_again(status: int, wait: str) -> None:
    """Nothing is tried again here: that is the pipeline's, which knows what is harmless."""
    headers = {"retry_after": wait} if wait else {}
    async with (
        service(reply({"message": "busy"}, status=status, **headers)) as (server, origin),
        tool(f"{origin}/x") as backend,
    ):
        with pytest.raises(UpstreamHttpError) as failed:
            await result(backend, "weather", {})
        assert failed.value.status == status
        assert "busy" in str(failed.value)
        assert failed.value.retry_after == (float(wait) if wait else None)
        again = why_again(call_of("weather", {}), failed.value, is_idempotent=False)
        assert again == ("unsent" if wait else "")
        assert why_again(call_of("weather", {}), failed.value, is_idempotent=True)
        assert len(server.asks) == 1


async def test_broken_answers_and_dead_services_are_told_apart() -> None:
    def cut(ask: Ask) -> bytes | None:
        ask.writer.transport.abort()
        return None

    async with service(cut) as (_, origin), tool(f"{origin}/x") as backend:
        with pytest.raises(UpstreamGone, match="shop"):
            await result(backend, "weather", {})
    with closed_port() as port:
        async with tool(f"http://127.0.0.1:{port}/x") as backend:
            with pytest.raises(UpstreamUnavailable, match="refused"):
                await result(backend, "weather", {})
            health = await backend.check()
            assert not health.ok
            assert "refused" in health.detail
    with pytest.raises(UpstreamUnavailable):
        await result(backend, "weather", {})


@pytest.mark.parametrize("is_deflate", [True, False])
async def test_a_small_answer_that_unpacks_to_a_large_one_is_cut_off(is_deflate: bool) -> None:
    """200 kB of gzip can stand for 200 MB."""
    bomb = zlib.compress(bytes(50_000_000), 9) if is_deflate else gzip.compress(bytes(50_000_000), 9)
    coding = "deflate" if is_deflate else "gzip"
    got = await told(reply(bomb, content_encoding=coding), max_response="1 MiB")
    assert got["isError"] is True
    assert "1 MiB (`max_response`)" in text_of(got)


async def test_packed_answers_are_unpacked_and_broken_ones_refused() -> None:
    def raw(data: bytes) -> bytes:
        packer = zlib.compressobj(wbits=-15)
        return packer.compress(data) + packer.flush()

    good = b'{"a":"' + b"b" * 5000 + b'"}'
    halves = gzip.compress(good[:100]) + gzip.compress(good[100:])
    for body, coding in ((gzip.compress(good), "gzip"), (halves, "gzip"), (raw(good), "deflate"), (good, "identity")):
        assert text_of(await told(reply(body, content_encoding=coding))) == good.decode()
    for body, coding in ((gzip.compress(good)[:-9], "gzip"), (b"no gzip at all", "gzip"), (good, "br")):
        with pytest.raises(UpstreamGarbled):
            await told(reply(body, content_encoding=coding))


async def test_redirects_are_followed_on_the_same_host_alone() -> None:
    async with service(reply({"stolen": True})) as (elsewhere, other):

        def answer(ask: Ask) -> bytes:
            if ask.path == "/here":
                return reply(status=302, location="/there?x=1")
            if ask.path == "/loop":
                return reply(status=307, location="/loop")
            if ask.path.startswith("/there"):
                return reply({"method": ask.method, "auth": ask.headers.get("authorization", "")})
            return reply(status=307, location=f"{other}/steal")

        auth = {"type": "bearer", "token": SECRET}
        async with service(answer) as (server, origin):
            async with tool(f"{origin}/here", method="POST", auth=auth, body={"a": 1}) as backend:
                got = await result(backend, "weather", {})
                assert got["structuredContent"] == {"method": "GET", "auth": "Bearer [redacted]"}
                assert server.asks[-1].body == b""
            async with tool(f"{origin}/away", auth=auth) as backend:
                got = await result(backend, "weather", {})
                assert got["isError"] is True
                assert f"redirects to {other.rpartition(':')[0]}" in text_of(got)
            async with tool(f"{origin}/loop") as backend:
                with pytest.raises(UpstreamGone, match="redirects more than"):
                    await result(backend, "weather", {})
        assert elsewhere.asks == []


@pytest.mark.parametrize(
    ("auth", "header", "query"),
    [
        ({"type": "bearer", "token": SECRET}, ("authorization", f"Bearer {SECRET}"), ""),
        ({"type": "basic", "username": "ada", "password": "p:w"}, ("authorization", "Basic YWRhOnA6dw=="), ""),
        ({"type": "api_key", "header": "X-Key", "key": SECRET}, ("x-key", SECRET), ""),
        ({"type": "api_key", "cookie": "sid", "key": SECRET}, ("cookie", f"sid={SECRET}"), ""),
        ({"type": "api_key", "query": "api key", "key": f"{SECRET}&"}, None, f"a=1&api%20key={SECRET}%26"),
    ],
)
async def test_credentials_stand_where_they_belong(
    auth: dict[str, Any], header: tuple[str, str] | None, query: str
) -> None:
    async with service(reply({})) as (server, origin), tool(f"{origin}/x?a=1", auth=auth) as backend:
        await result(backend, "weather", {})
        if header is not None:
            assert server.asks[0].headers[header[0]] == header[1]
        assert server.asks[0].path == f"/x?{query or 'a=1'}"


async def test_credentials_that_nobody_else_knows_of_are_masked_too() -> None:
    """A service that repeats what it gets shows a model neither what stands in the file nor what was fetched."""

    def answer(ask: Ask) -> bytes:
        if ask.path == "/token":
            return reply({"access_token": "fetched-token-1"})
        return reply({"got": ask.headers, "path": ask.path}, status=200 if ask.path.startswith("/x") else 400)

    async with service(answer) as (_, origin):
        oauth = {"type": "oauth2", "client_id": "me", "client_secret": "hidden-one", "token_url": f"{origin}/token"}
        basic = {"type": "basic", "username": "ada", "password": "hidden-two"}
        key = {"type": "api_key", "query": "k", "key": "hidden-three"}
        for path in ("x", "fails"):
            for auth in (oauth, basic, key):
                headers = {"X-Api-Key": "Key hidden-four"}
                async with tool(f"{origin}/{path}", auth=auth, headers=headers) as backend:
                    said = json.dumps(await result(backend, "weather", {}))
                    assert "hidden" not in said
                    assert "fetched" not in said
                    assert base64.b64encode(b"ada:hidden-two").decode() not in said
                    assert said.count("[redacted]") >= 2


async def test_a_token_is_fetched_once_and_again_when_it_is_refused() -> None:
    """OAuth 2.0, client credentials."""
    tokens = iter(("one-token", "two-token"))

    def answer(ask: Ask) -> bytes:
        if ask.path == "/token":
            assert ask.headers["authorization"] == f"Basic {base64.b64encode(b'me%3A:p%26').decode()}"
            assert ask.body == b"grant_type=client_credentials&scope=read%20all"
            return reply({"access_token": next(tokens), "token_type": "Bearer", "expires_in": 3600})
        return reply({}) if ask.headers["authorization"] == "Bearer two-token" else reply(status=401)

    async with service(answer) as (server, origin):
        auth = {"type": "oauth2", "client_id": "me:", "client_secret": "p&", "scope": "read all"}
        async with tool(f"{origin}/x", auth={**auth, "token_url": f"{origin}/token"}) as backend:
            assert "isError" not in await result(backend, "weather", {})
            assert "isError" not in await result(backend, "weather", {})
    assert [ask.path for ask in server.asks] == ["/token", "/x", "/token", "/x", "/x"]


async def test_cookies_of_one_call_do_not_show_in_another() -> None:
    async with service(reply({}, set_cookie="session=1; Path=/")) as (server, origin), tool(f"{origin}/x") as backend:
        await result(backend, "weather", {})
        await result(backend, "weather", {})
        assert server.connections == 1
        assert all("cookie" not in ask.headers for ask in server.asks)


async def test_a_form_is_sent_where_the_headers_say_so() -> None:
    async with (
        service(reply({})) as (server, origin),
        tool(
            f"{origin}/x",
            method="POST",
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            body='{"a": "{a}", "b": ["{a}", 2]}',
        ) as backend,
    ):
        await result(backend, "weather", {"a": "x&y=é"})
        assert server.asks[0].body == b"a=x%26y%3D%C3%A9&b=x%26y%3D%C3%A9&b=2"


async def test_tls_is_checked_and_can_be_told_whom_to_trust(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    async with service(reply({"a": 1}), ssl=context) as (_, origin):
        async with tool(f"{origin}/x") as backend:
            with pytest.raises(UpstreamUnavailable, match="not trusted"):
                await result(backend, "weather", {})
        async with tool(f"{origin}/x", tls={"ca": str(tmp_path / "ca.pem")}) as backend:
            assert (await result(backend, "weather", {}))["structuredContent"] == {"a": 1}
        beside = made("weather", "http", tmp_path, endpoint=f"{origin}/x", tls={"ca": "ca.pem"})
        async with beside.running(lambda: None):
            assert (await result(beside, "weather", {}))["structuredContent"] == {"a": 1}
        async with tool(f"{origin}/x", tls={"ca": str(tmp_path / "missing.pem")}) as backend:
            with pytest.raises(UpstreamUnavailable, match=r"tls\.ca"):
                await result(backend, "weather", {})


async def test_a_proxy_stands_between_where_one_is_set() -> None:
    async with (
        service(reply({"via": "proxy"})) as (server, proxy),
        tool("http://api.example.com/x", proxy=proxy) as backend,
    ):
        assert (await result(backend, "weather", {}))["structuredContent"] == {"via": "proxy"}
    assert server.asks[0].path == "http://api.example.com/x"


async def test_the_health_endpoint_decides_and_gets_credentials_on_the_same_host_alone() -> None:
    def answer(ask: Ask) -> bytes:
        return reply(status=204 if ask.path == "/ok" else 500)

    headers = {"X-Key": SECRET, "X-From": "{who?}"}
    async with service(answer) as (elsewhere, other), service(answer) as (server, origin):
        for health, is_ok in (("/ok", True), ("/sick", False), (None, True), (f"{other}/ok", True)):
            async with tool(f"{origin}/x", health=health, headers=headers) as backend:
                found = await backend.check()
                assert found.ok is is_ok, found.detail
        assert [(ask.method, ask.path, ask.headers.get("x-key")) for ask in server.asks] == [
            ("GET", "/ok", SECRET),
            ("GET", "/sick", SECRET),
            ("HEAD", "/", None),
        ]
        assert "x-key" not in elsewhere.asks[0].headers
        with pytest.raises(UnknownName):
            await backend.command("reload", {})


async def test_a_head_request_tells_the_headers() -> None:
    async with (
        service(reply(b"", content_length="77", etag='"x"')) as (_, origin),
        tool(f"{origin}/x", method="HEAD") as backend,
    ):
        with anyio.fail_after(60):
            said = text_of(await result(backend, "weather", {}))
    assert 'etag: "x"' in said
    assert "content-length: 77" in said


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"endpoint": "https://{host}/x"}, "scheme, host or port"),
        ({"endpoint": "{scheme}://h/x"}, "scheme, host or port"),
        ({"endpoint": "https://api.example.com:{port}/x"}, "scheme, host or port"),
        ({"endpoint": "https://{user}@api.example.com/x"}, "scheme, host or port"),
        ({"endpoint": "https://api.example.com{x}"}, "scheme, host or port"),
        ({"endpoint": "ftp://h/x"}, "expected an address"),
        ({"endpoint": "api.example.com"}, "expected an address"),
        ({"endpoint": "https://me:pw@h/x"}, "credentials"),
        ({"endpoint": "https://h/{x?}"}, "cannot be left out"),
        ({"endpoint": "https://h/{x y}"}, "brace"),
        ({"endpoint": "https://h/a/../b"}, "`..`"),
        ({"endpoint": "https://h/a#b"}, "fragment"),
        ({"endpoint": "https://h:99999/a"}, "not an address"),
        ({"output_mapping": "main.temp"}, "JSONPath"),
        ({"input_mapping": {"a": "$["}}, "JSONPath"),
        ({"body": {"a": 1}}, "method"),
        ({"method": "POST", "body": "{a}"}, "no JSON"),
        ({"params": {"a": "{b}"}, "input_schema": {"type": "object", "properties": {"a": {}}}}, "`{b}`"),
        ({"params": {"a": "{b}"}, "input_mapping": {"a": "$.b"}}, "`{b}`"),
        ({"headers": {"Content-Length": "1"}}, "Content-Length"),
        ({"headers": {"A": "b\r\nC: d"}}, "headers"),
        ({"auth": {"type": "api_key", "key": "k"}}, "name one of them"),
        ({"auth": {"type": "oauth2", "client_id": "a", "client_secret": "b", "token_url": "https://{x}/"}}, "host"),
        ({"health": "https://{x}/h"}, "host"),
        ({"health": "//evil/h"}, "expected an address"),
        ({"timeout": 5, "call_timeout": 6}, "the same"),
        ({"retry": {"backoff": 1, "backoff_s": 1}}, "the same"),
        ({"no_such": 1}, "no_such"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_reason(settings: dict[str, Any], expected: str) -> None:
    assert expected in wrong(**settings)


def test_settings_are_taken_as_specs_of_tools_have_them() -> None:
    given = {"endpoint": "https://h/{x}", "timeout": "5s", "retry": {"tries": 4, "backoff_s": 0.25}, "method": "delete"}
    settings = read_settings(given)
    assert isinstance(settings, HttpToolSettings)
    assert settings.call_timeout == 5
    assert settings.retry is not None
    assert (settings.retry.tries, settings.retry.backoff) == (4, 0.25)
    assert settings.method == "DELETE"
