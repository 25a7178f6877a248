"""`mcpbridge users` and `connections`: accounts of users are listed, taken away and encrypted anew (issue 23)."""

import json

from support.harness import Place, python_server

CANARY = "canary-77d1c0aa"


async def test_values_of_users_are_kept_listed_encrypted_anew_and_taken_away_without_being_shown(place: Place) -> None:
    auth = {"as": "user", "variables": ["USER_TOKEN"]}
    config = str(place.config({"me": {**python_server("whoami"), "auth": auth}}))
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
    }
    again = await place.run("users", "revoke", "alice", *options)
    assert again.code == 2
    left = await place.run("users", "list", "--config", config)
    assert "bob" in left.out
    assert "alice" not in left.out
    for finished in (listed, rotated, revoked, again, left):
        assert CANARY not in finished.out + finished.err


async def test_a_link_needs_a_bridge_that_browsers_reach(place: Place) -> None:
    finished = await place.run("connections", "link", "--user", "alice")
    assert finished.code == 4
