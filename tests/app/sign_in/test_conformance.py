"""The scenarios of the official conformance suite for authorization servers, against the bridge as one."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import pytest

from app.sign_in.test_with_clients import Person, bridge
from support.harness import Place
from support.identity_providers import mock_provider
from support.ports import free_port

SUITE = Path(__file__).parents[2] / "conformance/node/node_modules"
URL = re.compile(r"https?://\S+/oauth/authorize\?\S+")


@pytest.mark.skipif(not SUITE.exists(), reason="the conformance suite is not installed: `make conformance`")
async def test_the_bridge_is_a_conforming_authorization_server(place: Place, tmp_path: Path) -> None:
    port = free_port()
    back = f"http://127.0.0.1:{port}/callback"
    with mock_provider() as provider:
        async with bridge(place, provider) as origin, httpx2.AsyncClient(timeout=60) as http:
            document = {"client_name": "suite", "redirect_uris": [back], "token_endpoint_auth_method": "none"}
            client = (await http.post(f"{origin}/oauth/register", json=document)).json()["client_id"]
            suite = await asyncio.create_subprocess_exec(
                *(str(SUITE / ".bin/node"), str(SUITE / "@modelcontextprotocol/conformance/dist/index.js")),
                *("authorization", "--url", origin, "--client-id", client, "--resource", f"{origin}/mcp"),
                *("--port", str(port), "--output-dir", str(tmp_path)),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            shown: list[str] = []
            try:
                async with asyncio.timeout(120):
                    async for line in _lines(suite):
                        shown.append(line)
                        if found := URL.search(line):
                            person = Person(provider, "alice")
                            await person.visit(found[0])
                            answer = {
                                "code": person.result.code,
                                "state": person.result.state,
                                "iss": person.result.iss,
                            }
                            await http.get(f"{back}?{urlencode(answer)}")
                    await suite.wait()
            finally:
                if suite.returncode is None:
                    suite.kill()
                    await suite.wait()
    checks = [check for file in tmp_path.rglob("checks.json") for check in json.loads(file.read_text())]
    assert len(checks) >= 3, "".join(shown)
    assert {check["status"] for check in checks} <= {"SUCCESS", "INFO"}, "".join(shown)
    assert suite.returncode == 0, "".join(shown)


async def _lines(process: asyncio.subprocess.Process) -> AsyncIterator[str]:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        yield line.decode()
