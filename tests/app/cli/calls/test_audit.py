"""`mcpbridge audit`, on what real bridges and commands wrote (issue 22, Audit)."""

import csv
import io
import json
from pathlib import Path
from typing import Any

from support.harness import Place, python_server
from support.programs.daemon_process import daemon

SERVERS = {"one": python_server("plain")}
ON = {"enabled": True, "arguments": "masked"}


def folder_of(place: Place) -> Path:
    return place.folder / ".local" / "state" / "mcpbridge" / "audit"


async def shown(place: Place, *args: str) -> list[dict[str, Any]]:
    finished = await place.run("audit", "show", "--config", str(place.folder / "servers.toml"), "--json", *args)
    assert finished.code == 0, finished.err
    return [json.loads(line) for line in finished.out.splitlines()]


async def test_calls_through_a_bridge_are_shown_verified_and_exported(place: Place) -> None:
    async with place.bridge(SERVERS, audit=ON) as client:
        await client.initialize()
        await client.call("one__echo", text="=cmd")
    [call] = await shown(place, "--kind", "call")
    assert (call["tool"], call["outcome"], call["rule"]) == ("one/echo", "ok", "`permission` of `calls`")
    assert "=cmd" in call["arguments"]["value"]
    assert await shown(place, "--outcome", "refused") == []
    config = ("--config", str(place.folder / "servers.toml"))
    finished = await place.run("audit", "verify", *config)
    assert finished.code == 0
    assert "as they were written" in finished.out
    table = csv.DictReader(io.StringIO((await place.run("audit", "export", "--csv", *config)).out))
    assert [row["tool"] for row in table if row["kind"] == "call"] == ["one/echo"]


async def test_a_call_that_names_no_server_is_in_the_log(place: Place) -> None:
    """It ends before a bridge resolves the name, with a daemon and without."""
    config = place.config(SERVERS, audit=ON)
    token = "ghp_" + "x7Qm2Lp9Zt4Vb8Nc3Rw6Ks1Hd5Fg0Jy2Ua"
    assert (await place.run("call", f"nosuch/{token}", "--config", str(config))).code == 5
    async with daemon(place, config):
        place.env["MCPBRIDGE_STANDALONE"] = "0"
        assert (await place.run("call", "nowhere/y", "--config", str(config))).code == 5
        place.env["MCPBRIDGE_STANDALONE"] = "1"
    first, second = await shown(place, "--kind", "call.unknown_tool")
    assert (first["outcome"], second["outcome"]) == ("refused", "refused")
    assert first["tool"].startswith("nosuch/")
    assert token not in json.dumps(first)
    assert second["tool"] == "nowhere/y"


async def test_verify_names_the_line_that_was_changed(place: Place) -> None:
    async with place.bridge(SERVERS, audit=ON) as client:
        await client.initialize()
        await client.call("one__echo", text="one")
    [file] = folder_of(place).glob("*.jsonl")
    config = ("--config", str(place.folder / "servers.toml"))
    key = place.folder / "audit.pub"
    key.write_text((await place.run("audit", "key", *config)).out)
    file.write_bytes(file.read_bytes().replace(b'"outcome":"ok"', b'"outcome":"no"'))
    finished = await place.run("audit", "verify", "--key", str(key), *config)
    assert finished.code == 1
    assert f"{file.name}:" in finished.out
    assert "was changed" in finished.out
    finished = await place.run("audit", "verify", "--json", *config)
    assert [one["what"] for one in json.loads(finished.out)["findings"]] == ["changed"]


async def test_without_a_log_the_command_says_how_to_have_one(place: Place) -> None:
    config = str(place.config(SERVERS))
    for command in ("show", "verify", "export"):
        finished = await place.run("audit", command, "--config", config)
        assert finished.code == 4
        assert "enabled = true" in finished.err


async def test_secrets_and_signatures_go_into_the_log_of_the_user(place: Place) -> None:
    """By their names; values never."""
    own = place.folder / ".config" / "mcpbridge" / "servers.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[audit]\nenabled = true\n")
    place.config(SERVERS)
    assert (await place.run("secret", "set", "github", stdin="hunter2hunter2")).code == 0
    assert (await place.run("secret", "set", "github", stdin="hunter3hunter3")).code == 0
    assert (await place.run("secret", "rm", "github")).code == 0
    assert (await place.run("secret", "rm", "github")).code == 2
    config = ("--config", str(place.folder / "servers.toml"))
    assert (await place.run("lock", *config)).code == 0
    assert (await place.run("lock", "sign", "--new-key", *config)).code == 0
    assert (await place.run("lock", "verify", "--accept-older", *config)).code == 0
    finished = await place.run("audit", "show", "--config", str(own), "--json")
    assert "hunter" not in finished.out
    lines = [json.loads(line) for line in finished.out.splitlines()]
    named = [(one["kind"], one["detail"]) for one in lines if one["kind"].startswith(("secret.", "lock."))]
    lock = str(place.folder / "servers.lock")
    assert named == [
        ("secret.stored", "github"),
        ("secret.replaced", "github"),
        ("secret.deleted", "github"),
        ("lock.signed", lock),
        ("lock.older_accepted", lock),
    ]


async def test_what_is_trusted_goes_into_the_log_of_the_user(place: Place) -> None:
    """Never into one that the configuration in question names."""
    own = place.folder / ".config" / "mcpbridge" / "servers.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[audit]\nenabled = true\n")
    (place.folder / "cloned.toml").write_text('[audit]\nenabled = true\npath = "elsewhere"\n')
    assert (await place.run("trust", "cloned.toml")).code == 0
    assert (await place.run("untrust", "cloned.toml")).code == 0
    assert not (place.folder / "elsewhere").exists()
    finished = await place.run("audit", "show", "--config", str(own), "--json")
    given, withdrawn = [json.loads(line) for line in finished.out.splitlines()][-2:]
    assert (given["kind"], withdrawn["kind"]) == ("trust.given", "trust.withdrawn")
    assert given["who"].startswith("cli:")
    assert list(given["facts"]["files"]) == [str(place.folder / "cloned.toml")]
