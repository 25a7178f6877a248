"""An account that a person connected at one bridge counts at all of them (issue 24)."""

import json
import re
import signal
import subprocess
import sys
import time
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2

from support.real_sign_in import home_at
from support.redis_server import Server
from support.replicas import TOKEN, Replica, fleet, needs_fleet, until
from support.token_issuer import Issuer, issuing

pytestmark = needs_fleet

WHOAMI = Path(__file__).parents[1] / "servers" / "whoami.py"
SERVERS = (
    f'[servers.me]\ncommand = "{sys.executable}"\nargs = ["{WHOAMI}"]\n'
    'auth = { as = "user", variables = ["USER_TOKEN"] }\n'
)
ACCOUNTS = '[accounts]\nkey = "the key of the accounts of the fleet"\n'
HEADERS = {"authorization": f"Bearer {TOKEN}", "accept": "application/json, text/event-stream"}
ABOUT = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "fleet-tests", "version": "1"},
}


def command(replica: Replica, *arguments: str, given: str = "", settings: bool = True) -> str:
    """What a command says on the machine of a bridge. `settings`: it takes the configuration."""
    config = ["--config", str(replica.config)] if settings else []
    done = subprocess.run(
        [sys.executable, "-m", "mcpbridge", *arguments, *config],
        input=given.encode(),
        env=home_at(replica.directory),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def whoami(replica: Replica) -> str:
    """What the server of the caller says, through this bridge."""
    headers = {**HEADERS, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "me__whoami"}
    params = {"name": "me__whoami", "arguments": {}, "_meta": ABOUT}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = httpx2.post(replica.url, headers=headers, json=message, timeout=60, trust_env=False)
    text = answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        text = next(line[6:] for line in reversed(text.splitlines()) if line.startswith("data: {"))
    return json.dumps(json.loads(text))


def test_variables_that_are_set_at_one_bridge_count_at_the_others(tmp_path: Path) -> None:
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, size=2, servers=SERVERS, more=ACCOUNTS) as both:
            one, two = both.replicas
            command(one, "connections", "set", "me", "USER_TOKEN", "--user", "tester", given="token-1")
            until(lambda: "token-1" in whoami(two), "the other bridge knows the value")
            until(lambda: "token-1" in whoami(one), "the one beside the command hears of it, too")
            command(two, "connections", "set", "me", "USER_TOKEN", "--user", "tester", given="token-2")
            until(lambda: "token-2" in whoami(one), "the first one knows the new value")
            listed = command(one, "users", "list", "--json")
            assert "tester" in listed
            command(one, "users", "revoke", "tester")
            until(lambda: "account of your own" in whoami(two), "the other bridge has forgotten it")
    finally:
        redis.kill()


def test_a_browser_stays_with_the_bridge_whose_pages_it_visits(tmp_path: Path) -> None:
    """A bridge knows its visitors by itself, and the balancer sends each request to another one."""
    redis = Server(tmp_path / "redis").start()
    try:
        with fleet(tmp_path, redis, servers=SERVERS, more=f'{ACCOUNTS}url = "http://BALANCER"\n') as three:
            origin, owner = f"http://127.0.0.1:{three.port}", three.replicas[1]
            link = command(owner, "connections", "link", "--user", "tester", settings=False).strip()
            assert link.startswith(f"{origin}/connections/enter?code=")
            with httpx2.Client(trust_env=False, timeout=60, follow_redirects=True) as browser:
                headers = {"origin": origin, "sec-fetch-site": "same-origin"}
                ask = unescape(browser.get(link).text)
                [path], fields = (
                    re.findall(r'action="([^"]+)"', ask),
                    re.findall(r'name="([^"]+)" value="([^"]*)"', ask),
                )
                page = browser.post(f"{origin}{path}", data=dict(fields), headers=headers)
                for _ in range(6):
                    assert page.status_code == 200
                    assert "/connections/me/variables" in page.text
                    page = browser.get(f"{origin}/connections")
                [token, *_] = re.findall(r'name="form_token" value="([^"]+)"', page.text)
                form = {"form_token": token, "v.USER_TOKEN": "token-of-a-form"}
                for _ in range(4):
                    done = browser.post(f"{origin}/connections/me/variables", data=form, headers=headers)
                    assert done.status_code == 200, done.text
                until(lambda: "token-of-a-form" in whoami(three.replicas[0]), "another bridge knows the value")
                owner.kill()
                until(
                    lambda: "/connections/me/variables" not in browser.get(f"{origin}/connections").text,
                    "others answer",
                )
    finally:
        redis.kill()


async def test_who_is_put_out_at_one_bridge_is_out_at_all(tmp_path: Path) -> None:
    redis = Server(tmp_path / "redis").start()
    try:
        async with issuing() as issuer:
            more = (
                f'[auth]\nresource = "{issuer.resource}"\n[auth.issuers.acme]\nissuer = "{issuer.url}"\n'
                '[[roles]]\nname = "everybody"\nprincipals = "*"\nservers = "*"\n'
            )
            running = fleet(tmp_path, redis, size=2, more=more)
            both = await anyio.to_thread.run_sync(running.__enter__)  # the issuer answers meanwhile
            try:
                await _put_out(*both.replicas, issuer)
            finally:
                await anyio.to_thread.run_sync(running.__exit__, None, None, None)
    finally:
        redis.kill()


async def _put_out(one: Replica, two: Replica, issuer: Issuer) -> None:
    token, host = issuer.token(sub="alice", iat=int(time.time()) - 10), urlsplit(issuer.resource).netloc
    headers = {**HEADERS, "authorization": f"Bearer {token}", "host": host}
    begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}
    async with httpx2.AsyncClient(trust_env=False, timeout=90) as http:
        begun = await http.post(two.url, headers=headers, json=message)
        assert begun.status_code == 200, begun.text
        session = {**headers, "mcp-session-id": begun.headers["mcp-session-id"]}
        async with http.stream("GET", two.url, headers=session) as stream:
            assert stream.status_code == 200
            user = f"{issuer.url}#alice"
            done = await anyio.to_thread.run_sync(lambda: command(one, "users", "revoke", user))
            assert "refused" in done
            with anyio.fail_after(60):
                async for _ in stream.aiter_raw():  # until it ends
                    pass
        assert (await http.post(two.url, headers=session, json={**message, "method": "ping"})).status_code == 401


async def test_who_is_put_out_while_the_redis_server_is_away_is_out_at_all_afterwards(tmp_path: Path) -> None:
    redis = Server(tmp_path / "redis").start()
    try:
        async with issuing() as issuer:
            more = (
                f'[auth]\nresource = "{issuer.resource}"\n[auth.issuers.acme]\nissuer = "{issuer.url}"\n'
                '[[roles]]\nname = "everybody"\nprincipals = "*"\nservers = "*"\n'
            )
            running = fleet(tmp_path, redis, size=2, more=more)
            both = await anyio.to_thread.run_sync(running.__enter__)  # the issuer answers meanwhile
            try:
                one, two = both.replicas
                redis.signal(signal.SIGSTOP)
                done = await anyio.to_thread.run_sync(lambda: command(one, "users", "revoke", f"{issuer.url}#alice"))
                assert "refused" in done, "the bridge that runs does it as soon as it can"
                redis.signal(signal.SIGCONT)
                token = issuer.token(sub="alice", iat=int(time.time()) - 60)
                headers = {
                    **HEADERS,
                    "authorization": f"Bearer {token}",
                    "host": urlsplit(issuer.resource).netloc,
                }
                async with httpx2.AsyncClient(trust_env=False, timeout=90) as http:
                    with anyio.fail_after(90):
                        while (await http.get(f"{two.root}/readyz", headers=headers)).status_code != 401:
                            await anyio.sleep(0.1)
            finally:
                await anyio.to_thread.run_sync(running.__exit__, None, None, None)
    finally:
        redis.kill()


def test_a_fleet_without_a_key_of_accounts_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "servers.toml"
    config.write_text(
        '[store]\nkind = "redis"\nurl = "redis://127.0.0.1:1"\n'
        f'[fleet]\nlisten = "127.0.0.1:0"\nkey = "the key of this fleet"\n{SERVERS}',
        "utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "mcpbridge", "check", "--config", str(config)],
        env=home_at(tmp_path),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "accounts.key" in done.stderr.decode() + done.stdout.decode()
