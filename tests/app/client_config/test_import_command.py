"""`mcpbridge import` as people run it (issue 7)."""

import json
import os
import pty
import subprocess
import tomllib

from support.client_home import SECRETS, fill
from support.harness import Finished, Place
from support.programs import preloaded_bridge


def without_secrets(done: Finished) -> Finished:
    assert not [secret for secret in SECRETS if secret in done.out + done.err]
    return done


async def test_all_that_clients_have_is_found_shown_and_written(place: Place) -> None:
    """Issue 7: shows what it found and where, moves secrets to `${VAR}` with a warning, writes `servers.toml`."""
    fill(place.folder)
    done = without_secrets(await place.run("import", "--yes", "--secrets", "env"))
    assert done.code == 0, done.err
    rows = [line.split(maxsplit=4) for line in done.out.splitlines()]
    assert ["Claude", "Code", "~/.claude.json:5", "github", "new"] in rows
    assert any("is 'filesystem' of Claude Desktop" in line for line in done.out.splitlines())
    assert "set these in the environment" in done.err
    assert "STRIPE_TOKEN" in done.err
    path = place.folder / ".config" / "mcpbridge" / "servers.toml"
    written = tomllib.loads(path.read_text())["servers"]
    assert written["stripe"]["args"][-1] == "Authorization: Bearer ${STRIPE_TOKEN}"
    assert "sentry" not in written  # the home directory is no project


async def test_yes_is_not_said_to_what_a_directory_brings_along(place: Place) -> None:
    """A cloned repository must not have its programs run unasked."""
    repository = place.folder / "repository"
    repository.mkdir()
    brought = repository / ".mcp.json"
    brought.write_text(json.dumps({"mcpServers": {"evil": {"command": "evil"}}}))
    written = place.folder / ".config" / "mcpbridge" / "servers.toml"
    (place.folder / ".cursor").mkdir()
    own = {"mcpServers": {"own": {"command": "own"}}}
    (place.folder / ".cursor" / "mcp.json").write_text(json.dumps(own))

    async def imported(*words: str) -> tuple[Finished, set[str]]:
        place.folder, folder = repository, place.folder
        place.env["HOME"] = str(folder)
        try:
            done = await place.run("import", *words)
        finally:
            place.folder = folder
        return done, set(tomllib.loads(written.read_text())["servers"])

    done, servers = await imported("--yes")
    assert (done.code, servers) == (0, {"own"}), done.err
    assert f"mcpbridge import {brought}" in done.err
    done, servers = await imported(str(brought), "--yes")
    assert (done.code, servers) == (0, {"own", "evil"}), done.err
    assert "not taken over" not in done.err


async def test_secrets_go_where_init_puts_them(place: Place) -> None:
    """Issue 18: with `import`, too, a server that had all it needs has it afterwards."""
    entry = {"command": "a", "env": {"A_TOKEN": "x1-of-nobody-else"}}
    (place.folder / "one.json").write_text(json.dumps({"mcpServers": {"a": entry}}))
    done = await place.run("import", "one.json", "--yes")
    assert (done.code, "x1-of-nobody-else" in done.out + done.err) == (0, False)
    assert "one secret is kept in a private file in" in done.err
    config = place.folder / ".config" / "mcpbridge"
    written = tomllib.loads((config / "servers.toml").read_text())["servers"]
    assert written["a"]["env"] == {"A_TOKEN": "${file:secrets/A_TOKEN}"}
    secret = config / "secrets" / "A_TOKEN"
    assert (secret.read_text().strip(), secret.stat().st_mode & 0o777) == ("x1-of-nobody-else", 0o600)


async def test_a_dry_run_writes_nothing_and_shows_no_secret(place: Place) -> None:
    fill(place.folder)
    path = place.folder / "servers.toml"
    before = '[servers.mine]\ncommand = "mine"\nenv = { MY_TOKEN = "of-mine-0001" }\n'
    path.write_text(before)
    done = without_secrets(await place.run("import", "zed", "lm-studio", "--dry-run", "--secrets", "keep"))
    assert done.code == 0, done.err
    assert path.read_text() == before
    assert '+url = "https://huggingface.co/mcp"' in done.out
    assert "of-mine-0001" not in done.out + done.err
    assert not list(place.folder.glob("*.bak"))


async def test_programs_get_json(place: Place) -> None:
    project = fill(place.folder, "codex", "roo")
    output = place.folder / "new" / "servers.toml"
    done = without_secrets(
        await place.run("import", "codex", "roo", "--project", str(project), "--output", str(output), "--json", "-y")
    )
    told = json.loads(done.out)
    assert (told["config"], told["written"], told["backup"]) == (str(output), True, None)
    context7 = told["servers"][0]
    assert (context7["client"], context7["line"], context7["became"]) == ("codex", 5, "new")
    assert context7["left_out"] == ["required"]
    assert told["secrets"] == [{"name": "CONTEXT7_API_KEY", "servers": ["context7"], "in": "file", "set": False}]
    assert told["unset"]["BUILD_KEY"] == ["build"]
    assert set(tomllib.loads(output.read_text())["servers"]) == {"context7", "figma", "off", "docs", "build"}


async def test_a_broken_file_is_told_with_its_line_and_stops_no_other(place: Place) -> None:
    fill(place.folder, "kiro")
    broken = place.folder / "broken.json"
    broken.write_text('{\n  "mcpServers": {\n    "a": oops\n')
    done = await place.run("import", str(broken), "kiro", str(place.folder / "none.json"), "-y")
    assert done.code == 2
    assert "broken.json: line 3: not valid JSON" in done.err
    assert "none.json: no such file" in done.err
    assert "aws-docs" in (place.folder / ".config" / "mcpbridge" / "servers.toml").read_text()


async def test_a_client_that_is_none_is_told_with_the_nearest(place: Place) -> None:
    done = await place.run("import", "cursur")
    assert (done.code, "Did you mean 'cursor'?" in done.err) == (2, True)


async def test_nothing_is_written_that_nobody_agreed_to(place: Place) -> None:
    """A repository may bring servers along that its visitor did not look at."""
    fill(place.folder)
    for words in (("import",), ("import", "--json")):
        done = without_secrets(await place.run(*words))
        assert done.code == 2
        assert "Say --yes" in done.out + done.err
    assert not (place.folder / ".config" / "mcpbridge").exists()


async def test_what_was_done_with_secrets_is_told_with_the_other_ways(place: Place) -> None:
    (place.folder / "one.json").write_text(
        json.dumps({"mcpServers": {"a": {"command": "a", "env": {"A_TOKEN": "x1"}}}})
    )
    for kind, told in (
        ("keep", "one secret is written down as it is, for whoever reads servers.toml (--secrets file"),
        ("env", "one secret is not written down: ${NAME} stands for it (--secrets file"),
        ("file", "one secret is kept in a private file in"),
    ):
        done = await place.run("import", "one.json", "--secrets", kind, "--dry-run")
        assert told in done.err
        assert "x1" not in done.out + done.err


def test_in_a_terminal_people_are_asked(place: Place) -> None:
    """Before that they read where secrets go."""
    fill(place.folder, "lm-studio")
    config = place.folder / ".config" / "mcpbridge"
    no = at_a_terminal(place, "n\n", "import")
    assert "Write to" in no
    assert ", their secrets to private files beside it?" in " ".join(no.split())
    assert not config.exists()
    yes = at_a_terminal(place, "\n", "import")
    assert "wrote to" in yes
    assert "${file:secrets/HF_TOKEN}" in (config / "servers.toml").read_text()
    assert (config / "secrets" / "HF_TOKEN").read_text().strip() in SECRETS
    assert not [secret for secret in SECRETS if secret in no + yes]


def at_a_terminal(place: Place, typed: str, *args: str) -> str:
    """What a person sees who runs `mcpbridge ARGS` and types that."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*preloaded_bridge.command(), *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=place.folder,
        env=place.environment() | {"TERM": "dumb"},
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    seen = b""
    try:
        while data := os.read(ours, 4096):
            seen += data
    except OSError:  # the other end was closed
        pass
    finally:
        os.close(ours)
    process.wait(timeout=60)
    return seen.decode()
