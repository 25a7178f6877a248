"""`mcpbridge users` and `connections`: accounts of users are listed, taken away and encrypted anew (issue 23)."""

import json

from mcpbridge.core.identity import Identity
from mcpbridge.downstream.auth.revocations import Revocations
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.storage.settings import StoreSettings
from support.harness import Place, python_server

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


async def test_a_link_needs_a_bridge_that_browsers_reach(place: Place) -> None:
    finished = await place.run("connections", "link", "--user", "alice")
    assert finished.code == 4


async def test_tokens_of_an_issuer_are_refused_even_where_no_bridge_runs(place: Place) -> None:
    issuer = "https://login.example.com"
    auth = {"resource": "https://bridge.example.com/mcp", "issuers": {"acme": {"issuer": issuer}}}
    config = place.config({"up": python_server("plain")}, auth=auth, store={"path": str(place.folder / "kept.db")})
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
