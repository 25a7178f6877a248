"""See the bridge work on real servers: `make run`, or `python examples/show.py` when everything is installed.

Plays the scenes of `mcpbridge demo` on the servers of servers.toml, with a small repository of its own in a temporary
directory. Without Node, three of the five are servers of the demo instead, and it says so.
"""

import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import anyio
import click
import tomlkit

from mcpbridge.app.cli.demo import demo_options, play_cast
from mcpbridge.app.demo.cast import Cast, ToolCall
from mcpbridge.app.demo.own_cast import cast_of, stdio_servers, web_server
from mcpbridge.app.demo.servers.orders_data import all_orders

ROOT = Path(__file__).resolve().parent.parent
SERVERS = ROOT / "servers.toml"
EVERYTHING = ROOT / "examples/node_modules/.bin/mcp-server-everything"


def time_in_tokyo(said: str) -> str:
    """What the time is there, of the result of the server; empty: it is not right."""
    there = json.loads(said)["target"]["datetime"]
    return f"{there} in Tokyo" if re.search(r"T(23|00):30:00\+09:00$", there) else ""


FIND = {
    "request": "what time is it in Tokyo when it is 16:30 in Berlin",
    "found_call": ToolCall(
        "time__convert_time",
        {"source_timezone": "Europe/Berlin", "time": "16:30", "target_timezone": "Asia/Tokyo"},
    ),
    "answer": time_in_tokyo,
}


@click.command()
@demo_options
def main(*, is_paused: bool, price: float, as_json: bool) -> None:
    """Show what the bridge does, in eight scenes on the servers of servers.toml."""
    sys.exit(play_cast(real_cast, is_paused=is_paused, price=price, as_json=as_json))


@asynccontextmanager
async def real_cast(directory: Path) -> AsyncGenerator[Cast]:
    """The servers of servers.toml, as far as they are installed."""
    repository = make_repository(directory / "repository")
    if EVERYTHING.exists() and shutil.which("node") is not None:
        async with everything_over_http() as port:
            yield with_node(repository, port)
    else:
        async with web_server() as url:
            yield without_node(repository, directory, url)


def with_node(repository: Path, port: int) -> Cast:
    """All servers are real ones."""
    copy = repository / "backup/orders.json"

    def write(text: object) -> ToolCall:
        return ToolCall("files__write_file", {"path": str(copy), "content": text})

    return replace(
        with_git(cast_of(repository, SERVERS), repository),
        environment={"EXAMPLE_FILES": str(repository), "EVERYTHING_PORT": str(port)},
        large=ToolCall("files__read_text_file", {"path": str(repository / "orders.json")}),
        take=write,
        written_file=copy,
        slow=ToolCall("everything__trigger-long-running-operation", {"duration": 2, "steps": 8}),
        killed=ToolCall("files__list_directory", {"path": str(repository)}),
    )


def without_node(repository: Path, directory: Path, url: str) -> Cast:
    """Those on Python are real ones; the others are the demo's own."""
    document = tomlkit.parse(SERVERS.read_text("utf-8")).unwrap()
    for server in ("time", "git"):
        document["servers"][server]["command"] = str(ROOT / document["servers"][server]["command"])
    own = stdio_servers(directory)
    document["servers"] = {
        **{name: document["servers"][name] for name in ("time", "git")},
        **{name: own[name] for name in ("files", "shop")},
        "web": {"url": url},
    }
    config = directory / "servers.toml"
    config.write_text(tomlkit.dumps(document), "utf-8")  # pyright: ignore[reportUnknownMemberType]
    return replace(
        with_git(cast_of(directory, config), repository),
        killed=ToolCall("files__list_directory", {}),
        remark="Node is missing: 'time' and 'git' are real servers, the others small ones that the demo brings.",
    )


def with_git(cast: Cast, repository: Path) -> Cast:
    """The cast with calls to the servers `time` and `git`."""
    log = {"repoPath": str(repository), "max_count": "1"}
    return replace(
        cast,
        **FIND,
        mended=ToolCall("git__git_log", log),
        refused=ToolCall("git__git_log", {"repo_path": str(repository), "max_count": "two"}),
        approved=ToolCall("git__git_commit", {"repo_path": str(repository), "message": "The prices of 2027"}),
        has_happened=lambda: "2027" in git(repository, "log", "--format=%s"),
    )


def make_repository(directory: Path) -> Path:
    """A repository with the orders of a shop, and a change that waits for its commit."""
    (directory / "backup").mkdir(parents=True)
    git(directory, "init", "--quiet")
    git(directory, "config", "user.name", "Ada Byron")
    git(directory, "config", "user.email", "ada@example.com")
    (directory / "orders.json").write_text(json.dumps(all_orders(), indent=2), "utf-8")
    git(directory, "add", ".")
    git(directory, "commit", "--quiet", "--message", "The orders of 2026")
    (directory / "prices.csv").write_text("product,price\ndesk lamp,41.90\n", "utf-8")
    git(directory, "add", ".")
    return directory


def git(directory: Path, *arguments: str) -> str:
    """What a git command prints. No settings of the user have a part in it."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        environment.pop(name, None)
    command = ["git", "-C", str(directory), *arguments]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


@asynccontextmanager
async def everything_over_http() -> AsyncGenerator[int]:
    """The example's server at a URL, for the time of the context; gives its port."""
    port = free_port()
    environment = {**os.environ, "PORT": str(port)}
    command = [str(EVERYTHING), "streamableHttp"]
    with Path(os.devnull).open("wb") as nowhere:  # noqa: ASYNC230
        process = await anyio.open_process(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=nowhere, stderr=nowhere, start_new_session=True
        )
    async with process:
        try:
            with anyio.fail_after(30):
                while not accepts(port):
                    if process.returncode is not None:
                        raise OSError("the server 'web' did not start")
                    await anyio.sleep(0.05)
            yield port
        finally:
            process.kill()


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """One that nobody has, and that no system gives out by itself before a program of ours is there."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


if __name__ == "__main__":
    main()
