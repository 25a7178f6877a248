"""`mcpbridge users` and `connections`: accounts of users are listed, taken away and encrypted anew (issue 23)."""

import json
from functools import partial
from hashlib import sha256
from typing import Any

from mcpbridge.core.identity import Identity
from mcpbridge.downstream.auth.revocations import Revocations
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import StoreSettings
from support.answering_clients import ALL, FORM, ask
from support.harness import Place, eventually, python_server
from support.rpc import HttpClient, envelope
from support.token_issuer import EVERYBODY, issuing

CANARY = "canary-77d1c0aa"


async def test_values_of_users_are_kept_listed_encrypted_anew_and_taken_away_without_being_shown(place: Place) -> None:
    auth = {"as": "user", "variables": ["USER_TOKEN"]}
    config = str(place.config({"me": {**python_server("whoami"), "auth": auth}}, audit={"enabled": True}))
    options = ("--config", config, "--json")
    for user in ("alice", "bob"):
        kept = await place.run("connections", "set", "me", "USER_TOKEN", "--user", user, *options, stdin=f"{CANARY}\n")
        assert json.loads(kept.out) == {
            "format": "connections-set/1",
            "server": "me",
            "user": user,
            "name": "USER_TOKEN",
        }
    listed = await place.run("users", "list", *options)
    users = json.loads(listed.out)["users"]
    assert [(one["user"], [row["server"] for row in one["accounts"]]) for one in users] == [
        ("alice", ["me"]),
        ("bob", ["me"]),
    ]
    rotated = await place.run("connections", "rotate", *options)
    assert json.loads(rotated.out) == {"format": "connections-rotate/1", "encrypted": 2, "lost": 0}
    revoked = await place.run("users", "revoke", "alice", *options)
    assert json.loads(revoked.out) == {
        "format": "users-revoke/1",
        "user": "alice",
        "servers": ["me"],
        "calls": 0,
        "sign_ins": 0,
        "tokens": False,
    }
    again = await place.run("users", "revoke", "alice", *options)
    assert again.code == 2
    left = await place.run("users", "list", "--config", config)
    assert "bob" in left.out
    assert "alice" not in left.out
    audited = await place.run("audit", "show", "--json", "--kind", "account.*", "--config", config)
    lines = [json.loads(line) for line in audited.out.splitlines()]
    assert [(line["kind"], line.get("principal"), line["detail"]) for line in lines] == [
        ("account.variable_set", "alice", "USER_TOKEN"),
        ("account.variable_set", "bob", "USER_TOKEN"),
        ("account.key_rotated", None, "2 accounts"),
        ("account.revoked", "alice", "me"),
    ]
    for finished in (listed, rotated, revoked, again, left, audited):
        assert CANARY not in finished.out + finished.err


async def test_the_key_of_accounts_comes_from_a_command(place: Place) -> None:
    """A key management service prints it (docs/how-to/accounts-per-user.md). Without it nothing is kept or opened."""
    script = place.folder / "kms.sh"
    servers = {"me": {**python_server("whoami"), "auth": {"as": "user", "variables": ["USER_TOKEN"]}}}
    config = str(place.config(servers, accounts={"key": f"${{cmd:sh {script}}}"}))
    options = ("--config", config)
    keep = ("connections", "set", "me", "USER_TOKEN", "--user", *("alice", *options))
    key = "0123456789abcdef" * 4
    script.write_text(f"echo {key}", "utf-8")
    kept = await place.run(*keep, stdin=f"{CANARY}\n")
    assert kept.code == 0, kept.err
    vault = b"".join(path.read_bytes() for path in place.folder.rglob("*") if path.is_file() and path != script)
    assert CANARY.encode() not in vault
    assert key.encode() not in vault
    script.write_text("echo the service is locked >&2; exit 3", "utf-8")
    for finished in (await place.run("check", *options), await place.run(*keep, stdin=f"{CANARY}\n")):
        assert finished.code == 2
        assert "accounts.key: cannot read ${cmd:" in finished.err
        assert "`sh` ended with exit code 3: the service is locked" in finished.err
        assert "docs/reference/configuration.md#accounts" in finished.err
        assert CANARY not in finished.out + finished.err
    for printed, encrypted in (("another key" * 4, 0), (key, 1)):
        script.write_text(f"echo {printed}", "utf-8")
        rotated = json.loads((await place.run("connections", "rotate", *options, "--json")).out)
        assert rotated == {"format": "connections-rotate/1", "encrypted": encrypted, "lost": 1 - encrypted}


async def test_a_link_needs_a_bridge_that_browsers_reach(place: Place) -> None:
    finished = await place.run("connections", "link", "--user", "alice")
    assert finished.code == 4


async def test_tokens_of_an_issuer_are_refused_even_where_no_bridge_runs(place: Place) -> None:
    issuer = "https://login.example.com"
    auth = {"resource": "https://bridge.example.com/mcp", "issuers": {"acme": {"issuer": issuer}}}
    config = place.config(
        {"up": python_server("plain")}, auth=auth, roles=EVERYBODY, store={"path": str(place.folder / "kept.db")}
    )
    revoked = await place.run("users", "revoke", f"{issuer}#ann", "--config", str(config), "--json")
    assert json.loads(revoked.out)["tokens"] is True, revoked.err
    store = LazyStore(StoreSettings(path=str(place.folder / "kept.db")))
    try:
        kept = Revocations(store)
        assert await kept.refuses(Identity(f"{issuer}#ann", issuer, "ann", {"iat": 1}))
        assert not await kept.refuses(Identity(f"{issuer}#bob", issuer, "bob", {"iat": 1}))
    finally:
        await store.close()
    unknown = await place.run("users", "revoke", "https://other.example.com#ann", "--config", str(config))
    assert unknown.code == 2


async def test_who_called_is_listed_with_what_lets_them_in_and_is_put_out_by_the_name_of_the_list(place: Place) -> None:
    """Issue 23: people known only by an issuer have no account here, and are users all the same."""
    secret = "token-of-alice-0123456789"
    http = {"tokens": [{"name": "alice", "sha256": sha256(secret.encode()).hexdigest()}]}
    roles = [{"name": "all", "principals": "*", "servers": "up", "quota": "9 calls per day"}]
    async with issuing() as issuer:
        sections: dict[str, Any] = {"http": http, "auth": issuer.settings(), "roles": roles}
        ann, config = f"{issuer.url}#ann", str(place.folder / "servers.toml")
        options = ("--config", config)
        async with place.http_bridge({"up": python_server("plain")}, **sections) as client:
            for token in (secret, issuer.token(email="ann@example.com", email_verified=True)):
                async with HttpClient(client.url, client.command) as one:
                    one.http.headers["authorization"] = f"Bearer {token}"
                    await one.initialize()
                    await one.tools_with("up__echo")
                    await one.call("up__echo", text="x")

            async def listed() -> list[dict[str, Any]]:
                return json.loads((await place.run("users", "list", *options, "--json")).out)["users"]

            users = await eventually(listed, lambda found: sum(one["calls"] for one in found) == 2)
            assert [(one["user"], one["name"], one["origin"], one["calls"]) for one in users] == [
                ("alice", "", "http.tokens", 1),
                (ann, "ann@example.com", "auth.issuers.acme", 1),
            ]
            assert all(one["last_seen"] for one in users)
            shown = await place.run("users", "list", *options)
            assert all(word in shown.out for word in ("Last call", "auth.issuers.acme", ann, "ann@example.com"))
            named = await place.run("users", "revoke", "ann@example.com", *options)
            assert named.code == 2, "a name may be chosen by anybody"
            assert ann in named.err
            revoked = await place.run("users", "revoke", ann, *options, "--json")
            assert json.loads(revoked.out)["tokens"] is True
            kept = await place.run("users", "revoke", "alice", *options)
            assert kept.code == 2
            assert "http.tokens" in kept.err
        assert "auth.issuers.acme" in shown.out
        place.config({"up": python_server("plain")})
        orphans = await listed()
        assert [(one["user"], one["origin"]) for one in orphans] == [("alice", ""), (ann, "")]
        gone = await place.run("users", "revoke", ann, *options)
        assert gone.code == 0, "what the list shows is taken"
        unknown = await place.run("users", "revoke", "nobody", *options)
        assert unknown.code == 2


async def test_calls_of_whoever_is_put_out_wait_for_no_answer_any_more(place: Place) -> None:
    """Issue 23: what somebody was asked, the server hears no answer to, and those of others wait on."""
    meta = envelope(**{"io.modelcontextprotocol/clientCapabilities": ALL})
    journal = place.folder / "up.journal"
    up = python_server("asking", "legacy", f"journal={journal}")

    async def sent() -> list[dict[str, Any]]:
        return [message for _, message in map(json.loads, journal.read_text("utf-8").splitlines())]

    async with (
        issuing() as issuer,
        place.http_bridge({"up": up}, auth=issuer.settings(), roles=EVERYBODY) as client,
    ):
        questions: dict[str, Any] = {}
        for name in ("ann", "bob"):
            client.http.headers["authorization"] = f"Bearer {issuer.token(sub=name)}"
            [question, _] = steps = ask(FORM)
            params = {"name": "up__play", "arguments": {"steps": steps}, "_meta": meta}
            begin = partial(client.request, "tools/call", params, within=30)
            await eventually(begin, lambda answer: answer.message.get("result", {}).get("inputRequests"))
            questions[name] = question["send"]["id"]
        ann = f"{issuer.url}#ann"
        revoked = await place.run("users", "revoke", ann, "--config", str(place.folder / "servers.toml"), "--json")
        assert json.loads(revoked.out)["calls"] == 1, revoked.err
        heard = await eventually(sent, lambda found: found[-1].get("method") == "notifications/cancelled")
        answers = {message["id"]: message["result"] for message in heard if "result" in message}
        assert answers == {questions["ann"]: {"action": "cancel"}}


async def test_who_has_used_a_quota_is_listed_without_a_call_log(place: Place) -> None:
    roles = [{"name": "all", "principals": "*", "servers": "up", "quota": "9 calls per day"}]
    http = {"tokens": [{"name": "alice", "sha256": sha256(b"secret-of-alice").hexdigest()}]}
    options = ("--config", str(place.folder / "servers.toml"), "--json")
    log = {"enabled": False}
    async with place.http_bridge({"up": python_server("plain")}, http=http, roles=roles, call_log=log) as client:
        client.http.headers["authorization"] = "Bearer secret-of-alice"
        await client.initialize()
        await client.tools_with("up__echo")
        await client.call("up__echo", text="x")
    [alice] = json.loads((await place.run("users", "list", *options)).out)["users"]
    assert (alice["user"], alice["last_seen"], alice["calls"]) == ("alice", None, 0)
