"""`mcpbridge secret`: values go in by a prompt or a pipe, and never come out (issue 22)."""

import asyncio
import json
import os
import pty
from contextlib import suppress
from pathlib import Path

from mcpbridge.storage.named_secrets import NamedSecrets
from support.harness import Place

CANARY = "canary-5f2d9c71"


async def piped(place: Place, value: str, *words: str) -> tuple[int, str]:
    finished = await place.run(*words, stdin=value)
    return finished.code, finished.out + finished.err


def stored(place: Place) -> NamedSecrets:
    return NamedSecrets({"XDG_DATA_HOME": str(Path(place.environment()["HOME"], ".local/share"))})


async def test_a_value_from_a_pipe_is_stored_listed_and_deleted_without_being_shown(place: Place) -> None:
    code, out = await piped(place, f"{CANARY}\n", "secret", "set", "github")
    assert code == 0, out
    assert "${secret:github}" in out
    assert stored(place).get("github") == CANARY
    again = await piped(place, f"{CANARY}2", "secret", "set", "github", "--json")
    assert json.loads(again[1]) == {"format": "secret-set/1", "name": "github", "replaced": True}
    listed = await place.run("secret", "list")
    assert "github" in listed.out
    as_json = await place.run("secret", "list", "--json")
    [one] = json.loads(as_json.out)["secrets"]
    assert one.keys() == {"name", "set_at"}
    wrong = await place.run("secret", "rm", "gihtub")
    assert (wrong.code, "Did you mean 'github'?" in wrong.err) == (2, True)
    removed = await place.run("secret", "rm", "github", "--json")
    assert json.loads(removed.out)["removed"] is True
    assert "no secret is stored" in (await place.run("secret", "list")).out
    for shown in (out, again[1], listed.out, listed.err, as_json.out, removed.out):
        assert CANARY not in shown


async def test_a_value_on_the_command_line_is_refused(place: Place) -> None:
    """Other users of a machine see the command lines of all processes."""
    finished = await place.run("secret", "set", "github", CANARY)
    assert finished.code == 2
    assert stored(place).list() == []


async def test_what_is_no_value_or_no_name_is_refused(place: Place) -> None:
    assert (await piped(place, "", "secret", "set", "github"))[0] == 2
    assert (await piped(place, "\n", "secret", "set", "github"))[0] == 2
    code, out = await piped(place, CANARY, "secret", "set", "a b")
    assert code == 2
    assert "not usable as the name" in out
    assert CANARY not in out


async def test_at_a_terminal_the_value_is_asked_for_and_not_echoed(place: Place) -> None:
    ours, its = pty.openpty()
    shown = b""
    process = await place.start("secret", "set", "github", terminal=its)
    os.close(its)
    try:
        async with asyncio.timeout(60):
            while b"Value of github" not in shown:
                shown += await asyncio.to_thread(os.read, ours, 65536)
            os.write(ours, f"{CANARY}\n".encode())
            with suppress(OSError):  # its end
                while piece := await asyncio.to_thread(os.read, ours, 65536):
                    shown += piece
            assert await process.wait() == 0, shown
    finally:
        os.close(ours)
    assert CANARY.encode() not in shown
    assert stored(place).get("github") == CANARY
