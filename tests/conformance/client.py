"""The client under test, as the suite starts it: once for each scenario, with the URL of the suite's server.

It starts the bridge on stdio with that URL as its one upstream, and does as an ordinary client what the scenario wants
done. What the suite looks at is then what the bridge sends: requests, headers, `_meta`, OAuth.

    client.py URL               the bridge
    client.py --direct URL      the official SDK in its place: what can be had
"""

import argparse
import asyncio
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import mcp_types as t
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
IS_MODERN = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2026-07-28") >= "2026"
CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"
"""The client id that the suite's authorization server takes as a URL."""

_BLANK = {"string": "x", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}


def filled(schema: dict[str, Any]) -> dict[str, Any]:
    """What the schema asks for: its defaults, and something for the rest that is required."""
    required = schema.get("required", [])
    return {
        name: property_.get("default", _BLANK.get(property_.get("type"), "x"))
        for name, property_ in schema.get("properties", {}).items()
        if "default" in property_ or name in required
    }


async def elicited(_context: Any, params: Any) -> t.ElicitResult:
    """A user who visits what they are shown, takes every default, and agrees."""
    if isinstance(params, t.ElicitRequestURLParams):
        await visited(params.url)
        return t.ElicitResult(action="accept")
    return t.ElicitResult(action="accept", content=filled(params.requested_schema))


async def visited(url: str) -> None:
    """Follow a page to its end, as a browser would."""
    code = "import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=20).read()"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, url)
    await process.wait()


async def sampled(_context: Any, _params: Any) -> t.CreateMessageResult:
    return t.CreateMessageResult(role="assistant", content=t.TextContent(type="text", text="ok"), model="none")


async def rooted(_context: Any) -> t.ListRootsResult:
    return t.ListRootsResult(roots=[])


async def drive(client: Client) -> None:
    """Do what the scenario wants done."""
    tools = (await client.list_tools()).tools

    def named(name: str) -> Any:
        """A tool of the suite's server, by its name there."""
        return next(tool for tool in tools if tool.name in (name, f"up__{name}"))

    async def call(name: str, arguments: dict[str, Any] | None = None) -> None:
        try:
            await client.call_tool(named(name).name, arguments or {})
        except Exception as error:  # noqa: BLE001 - some scenarios want the call refused; the suite judges, not we
            print(f"{name}: {error!r}", file=sys.stderr)

    match SCENARIO:
        case "initialize" | "json-schema-ref-no-deref":
            return
        case "tools_call" | "request-metadata" | "http-standard-headers":
            await call("add_numbers", {"a": 5, "b": 3})
            if SCENARIO == "http-standard-headers":
                for resource in (await client.list_resources()).resources[:1]:
                    await client.read_resource(resource.uri)
                for prompt in (await client.list_prompts()).prompts[:1]:
                    needed = {argument.name: "x" for argument in prompt.arguments or [] if argument.required}
                    await client.get_prompt(prompt.name, needed)
        case "sse-retry":
            await call("test_reconnection")
        case "elicitation-sep1034-client-defaults":
            await call("test_client_elicitation_defaults")
        case "json-schema-2020-12-preservation":
            await call("json_schema_echo", {"schema": named("json_schema_2020_12_tool").input_schema})
        case "http-custom-headers":
            for wanted in CONTEXT.get("toolCalls", []):
                await call(wanted["name"], wanted.get("arguments"))
        case "sep-2322-client-request-state":
            for name in ("echo_state", "unrelated", "no_state", "no_result_type"):
                await call(f"test_mrtr_{name}")
        case _ if SCENARIO.startswith("auth/"):
            for tool in [tool for tool in tools if tool.name != "recall"][:1]:  # that one is the bridge's own
                await call(tool.name, filled(tool.input_schema))
        case _:  # http-invalid-tool-headers: whatever is offered may be called
            for tool in tools:
                await call(tool.name, filled(tool.input_schema))


async def session(server: Any, mode: str) -> None:
    async with Client(
        server, mode=mode, elicitation_callback=elicited, sampling_callback=sampled, list_roots_callback=rooted
    ) as client:
        await drive(client)


# -- the bridge


def browser(folder: Path) -> dict[str, str]:
    """The variables that make every way to open a page lead to a program that visits it."""
    code = "import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=20).read()"
    visit = f'{shlex.quote(sys.executable)} -c {shlex.quote(code)} "$1"'
    for name in ("xdg-open", "open", "www-browser"):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{visit} >/dev/null 2>&1 &\n", "utf-8")
        program.chmod(0o755)
    return {"BROWSER": str(folder / "www-browser"), "PATH": f"{folder}:{os.environ['PATH']}"}


def configuration(url: str) -> str:
    """The `servers.toml` of a bridge with the suite's server as its one upstream."""
    given = {"client_metadata_url": CLIENT_METADATA}
    if "client_id" in CONTEXT:
        given = {name: CONTEXT[name] for name in ("client_id", "client_secret") if name in CONTEXT}
    auth = ", ".join(f"{name} = {json.dumps(value)}" for name, value in given.items())
    # A client that asks for the tools while a person is still signing in would be shown none yet, and leave.
    return f"bridge.startup_wait = 20\n[servers.up]\nurl = {json.dumps(url)}\nauth = {{ {auth} }}\n"


async def through_the_bridge(url: str) -> None:
    with tempfile.TemporaryDirectory(prefix="conformance-client-") as name:
        folder = Path(name)
        config = folder / "servers.toml"
        config.write_text(configuration(url), "utf-8")
        args = ["-m", "mcpbridge", "serve", "--standalone", "--config", str(config)]
        env = {**os.environ, **browser(folder), "HOME": name, "XDG_RUNTIME_DIR": name}
        bridge = StdioServerParameters(command=sys.executable, args=args, env=env)
        await session(bridge, "auto" if IS_MODERN else "legacy")


# -- the SDK alone


async def directly(url: str) -> None:
    # The server of one scenario is older than the revision that the scenario is scored at.
    mode = "auto" if IS_MODERN and SCENARIO != "json-schema-ref-no-deref" else "legacy"
    if not SCENARIO.startswith("auth/"):
        await session(url, mode)
        return
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async with httpx2.AsyncClient(auth=signing_in(url), timeout=30) as http:
        await session(streamable_http_client(url, http_client=http), mode)


def signing_in(url: str) -> Any:
    """The SDK's authorization, with a stand-in for the browser."""
    from urllib.parse import parse_qs, urlsplit

    import httpx2
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata

    redirect = "http://localhost:3030/callback"

    class Memory:
        tokens: Any = None
        client: Any = None

        async def get_tokens(self) -> Any:
            return self.tokens

        async def set_tokens(self, tokens: Any) -> None:
            self.tokens = tokens

        async def get_client_info(self) -> Any:
            return self.client

        async def set_client_info(self, client_info: Any) -> None:
            self.client = client_info

    store = Memory()
    if "client_id" in CONTEXT:
        store.client = OAuthClientInformationFull(
            client_id=CONTEXT["client_id"],
            client_secret=CONTEXT.get("client_secret"),
            redirect_uris=[redirect],
            token_endpoint_auth_method="client_secret_basic" if "client_secret" in CONTEXT else "none",
        )
    answer: dict[str, str] = {}

    async def visit(page: str) -> None:
        async with httpx2.AsyncClient(timeout=60) as http:
            response = await http.get(page, follow_redirects=False)
        answer.update(
            {name: values[0] for name, values in parse_qs(urlsplit(response.headers["location"]).query).items()}
        )

    async def came_back() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=answer["code"], state=answer.get("state"), iss=answer.get("iss"))

    return OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata(
            client_name="conformance",
            redirect_uris=[redirect],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        ),
        storage=store,
        redirect_handler=visit,
        callback_handler=came_back,
        client_metadata_url=CLIENT_METADATA,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("url")
    options = parser.parse_args()
    asyncio.run((directly if options.direct else through_the_bridge)(options.url))


if __name__ == "__main__":
    main()
