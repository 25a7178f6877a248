"""What the documentation shows is true: its examples are run.

How a fenced block is checked is said by its first line:

    toml, json    a configuration of ours is loaded, and checked against the JSON Schema; other JSON must be JSON
    … client      the configuration of a client: what it starts, or the URL that it asks, must be ours
    console       `$ ` begins a command, which is run; below it stands what it prints, where … stands for anything.
                  A variable that is set (`$ NAME=$(…)`) is known to the commands below
    sh            every `mcpbridge …` in it must be a command line that the program accepts, and every `make …` a
                  target of the Makefile
    python        is run; `python examples/library/NAME.py` is a part of that file, which is run
    … signature   how something is called, in a page that is generated
    … no-run="…"  is not run, for the reason that it gives; at most one block in ten

Commands run where the page's first `toml` block is the servers.toml; a page without servers gets `time` and `git`.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import click
import jsonschema
import pytest
from pydantic import BaseModel

from mcpbridge.app.cli import commands, serve
from mcpbridge.app.plain_options import read_options
from mcpbridge.config.load import read
from mcpbridge.config.schema import BridgeSettings, Settings
from mcpbridge.config.trust.content import whole_content
from mcpbridge.config.trust.decisions import TrustStore
from mcpbridge.tools.builtin.settings import BuiltinSettings
from mcpbridge.tools.factory import KEYS, model_of
from support.harness import Place
from support.programs import preloaded_bridge
from support.programs.preloaded_python import prepared
from support.servers_schema import check

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SERVERS = ROOT / ".venv-servers/bin"
_NAMES = ("ANTHROPIC_API_KEY", "DOCS_TOKEN", "GH_TOKEN", "LIVE_TOKEN", "PROXY_PASSWORD", "KEY_PASSWORD", "STORE_KEY",
          "REDIS_PASSWORD", "FLEET_KEY", "ACCOUNTS_KEY",
          "BANK_SECRET", "ORDERS_TOKEN", "PETSTORE_KEY", "SHOP_TOKEN", "TAVILY_API_KEY", "WEATHER_KEY")  # fmt: skip
ANY = dict.fromkeys(_NAMES, "something of more than 16 characters") | {
    "SLACK_WEBHOOK_URL": "https://hooks.example.com/x"
}
"""Variables that examples use."""

_FENCE = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_NO_RUN = re.compile(r' no-run="([^"]+)"')
_MAKE = re.compile(r"^make ([\w-]+)", re.MULTILINE)
_MOST_NOT_RUN = 0.1
"""Of the blocks that are no signatures."""
_NOT_OURS = {"claude", "--from", "pipx", "docker"}
"""Words of lines in which `mcpbridge` is no command of ours."""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    kind: str
    text: str
    no_run: str = ""
    """Why nothing runs it."""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text("utf-8")
        for found in _FENCE.finditer(text):
            reason = _NO_RUN.search(found[3])
            kind, code = found[2] + _NO_RUN.sub("", found[3]), textwrap.dedent(found[4])
            yield Block(page, text.count("\n", 0, found.start()) + 1, kind, code, reason[1] if reason else "")


BLOCKS = list(blocks())


def of_kind(*kinds: str) -> Any:
    run = [block for block in BLOCKS if block.kind in kinds and not block.no_run]
    return pytest.mark.parametrize("block", run, ids=str)


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    known = {"toml", "json", "toml client", "json client", "console", "sh", "python", "python signature"}
    parts = re.compile(r"python examples/library/\w+\.py")  # of files that test_library_snippets.py runs
    odd = [str(block) for block in BLOCKS if not block.no_run and block.kind not in known]
    assert [one for one in odd if not any(one == str(b) and parts.fullmatch(b.kind) for b in BLOCKS)] == []


def test_a_shell_block_without_a_command_of_ours_says_why_it_is_not_run() -> None:
    shells = [block for block in BLOCKS if block.kind == "sh" and not block.no_run]
    quiet = [block for block in shells if not list(commands_in(block.text)) and not _MAKE.search(block.text)]
    assert [str(block) for block in quiet] == []


def test_nine_blocks_in_ten_are_run() -> None:
    """Issue 19: those that cannot run say why, and are at most one in ten."""
    blocks = [block for block in BLOCKS if block.kind != "python signature"]
    still = [str(block) for block in blocks if block.no_run]
    assert len(still) <= _MOST_NOT_RUN * len(blocks), still


_SERVERS = "".join(f'\n[servers.{name}]\ncommand = "{name}"\n' for name in ("bank", "git", "github", "time"))
"""What fragments of a file name that stands elsewhere in it."""


@of_kind("toml")
def test_a_configuration_is_loaded_and_fits_the_schema(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "servers.toml"
    path.write_text(block.text + _SERVERS if "servers" not in tomllib.loads(block.text) else block.text)
    shutil.copy(ROOT / "examples/tools/agent-capabilities.json", tmp_path)
    settings = read(path, ANY).settings
    offering = [*settings.servers.values(), *settings.tools.values()]
    assert [one.unavailable for one in offering] == [None] * len(offering)
    check(tomllib.loads(block.text))


def test_the_example_fits_the_schema_and_a_mistake_does_not() -> None:
    example = tomllib.loads((ROOT / "servers.toml").read_text("utf-8"))
    check(example)
    for short in ({"retry": 3}, {"url": "http://x", "auth": "none"}, {"isolation": "client"}):
        check({"servers": {"time": short if "url" in short else {"command": "x", **short}}})
    for wrong in ({"comand": "x"}, {}, {"command": "x", "url": "http://x"}, {"command": "x", "call_timeout": "soon!"}):
        with pytest.raises(jsonschema.ValidationError):
            check({"servers": {"time": wrong}})


@of_kind("json")
def test_json_is_json_and_a_configuration_is_loaded(block: Block, tmp_path: Path) -> None:
    if "mcpServers" in json.loads(block.text):
        path = tmp_path / "mcp.json"
        path.write_text(block.text)
        loaded = read(path, ANY)
        assert loaded.warnings == ()
        assert loaded.settings.servers


@of_kind("toml client", "json client")
def test_what_a_client_is_told_to_start_or_ask_is_the_bridge(block: Block) -> None:
    document = tomllib.loads(block.text) if block.kind == "toml client" else json.loads(block.text)
    [servers] = document.values()
    [server] = servers.values()
    if "url" in server:
        assert server["url"] == f"http://{serve.DEFAULT_ADDRESS}/mcp"
    else:
        assert Path(server["command"]).name == "mcpbridge"
        accepted(server["args"])


@of_kind("sh")
def test_a_command_line_is_accepted(block: Block) -> None:
    for words in commands_in(block.text):
        accepted(words)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert [target for target in _MAKE.findall(block.text) if target not in targets] == []


def commands_in(text: str) -> Iterator[list[str]]:
    """The words behind each `mcpbridge` that is a command."""
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if "mcpbridge" in words and not _NOT_OURS & {*words}:
            ours = words[words.index("mcpbridge") + 1 :]
            yield list(takewhile(lambda word: word not in ("|", ">", "<", "&&"), ours))


def accepted(words: list[str]) -> None:
    """Fail if the program would not take these words. Nothing is started."""
    if words in ([], ["--help"], ["--version"]):
        return
    if words[0] == "serve":
        options = read_options(words[1:], serve.OPTIONS, serve.options_parser)
        if options.http:
            serve.parse_address(options.http)
        return
    command: click.Command | None = commands._mcpbridge
    with click.Context(command) as context:
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            _, command, words = command.resolve_command(context, words)
        assert command
        command.make_context("mcpbridge", words)


@pytest.fixture(scope="module")
def serving() -> Iterator[list[str]]:
    """The command that starts one of the example's servers. Nearly every page does, and each has much to import."""
    assert (SERVERS.parent / ".ready").exists(), "run `make example` first: it installs the example's servers"
    programs = [SERVERS / f"mcp-server-{name}" for name in ("git", "time")]
    with tempfile.TemporaryDirectory() as near, prepared(Path(near), *programs, python=str(SERVERS / "python")) as be:
        yield be


@pytest.fixture
def reader(place: Place, serving: list[str]) -> dict[str, str]:
    """The environment of someone who reads the pages: `uvx` finds the example's servers, `.` is a repository."""
    programs = place.folder / "bin"
    programs.mkdir()
    (place.folder / "examples").mkdir()
    shutil.copy(ROOT / "examples/orders.py", place.folder / "examples")
    for beside in ("mycode.py", "poem.txt"):
        shutil.copy(ROOT / "examples/tools" / beside, place.folder)
    ours = shlex.join(preloaded_bridge.command())
    bridge = f'env MCPBRIDGE_STANDALONE=1 {ours} "$@"'  # a client hands few variables on
    for name, text in {"mcpbridge": bridge, "uvx": f'{shlex.join(serving)} {SERVERS}/"$@"'}.items():
        (programs / name).write_text(f"#!/bin/sh\nexec {text}\n")
        (programs / name).chmod(0o755)
    identity = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = place.environment() | identity
    environment |= {"PATH": f"{programs}:{environment['PATH']}", "PYTHONUNBUFFERED": "1"}
    for command in (["init", "--quiet", "--initial-branch=main"], ["commit", "--quiet", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", *command], cwd=place.folder, env=environment, check=True)
    return environment


async def run(place: Place, env: dict[str, str], *command: str) -> str:
    """What a command prints, standard error included."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=place.folder,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(60):
            printed = (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, printed
    return printed


@pytest.mark.skipif(os.name != "posix", reason="the pages show a POSIX shell")
@of_kind("console", "python")
async def test_an_example_does_what_the_page_says(block: Block, place: Place, reader: dict[str, str]) -> None:
    config = place.folder / "servers.toml"
    needed = block.kind == "console" or "servers.toml" in block.text
    config.write_text(configuration(block.page) if needed else TWO_SERVERS)
    loaded = read(config, reader)  # a person would be asked
    TrustStore(reader).add(config, whole_content(loaded.settings, loaded.content))
    known = ""
    if block.kind == "python":
        printed = await run(place, reader, sys.executable, "-c", block.text)
        assert "time__convert_time\n" in printed or "print(tool.name)" not in block.text
    else:
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
            if re.match(r"[A-Z]+=", command):
                known += f"{command}\n"
                continue
            printed = await run(place, reader, "sh", "-c", known + command)
            assert re.fullmatch(as_pattern(expected), printed, re.DOTALL), f"$ {command}\n{printed}"
    assert not place.survivors()


def configuration(page: Path) -> str:
    """The servers.toml of the readers of a page: its first block, or two servers; these too if the block has none."""
    first = next((block.text for block in BLOCKS if block.page == page and block.kind == "toml"), "")
    return first if {"servers", "tools", "builtin", "packs"} & {*tomllib.loads(first)} else f"{first}\n{TWO_SERVERS}"


TWO_SERVERS = """
[servers.time]
command = "uvx"
args = ["mcp-server-time"]

[servers.git]
command = "uvx"
args = ["mcp-server-git"]
"""


def as_pattern(expected: str) -> str:
    """A line that is … alone stands for any lines, elsewhere it stands for any text of a line."""
    pattern = re.escape(expected).replace(re.escape("…"), "…")
    return re.sub(r"^…\\\n", ".*?", pattern, flags=re.MULTILINE).replace("…", "[^\n]*")


def test_every_part_of_the_configuration_has_its_table() -> None:
    """What can be set stands in the reference: each section's model has a block, which is filled by the script."""
    page = (ROOT / "docs/reference/configuration.md").read_text("utf-8")
    shown = set(re.findall(r"<!-- fields: (\w+) -->", page))
    kinds = [model_of(kind) for kind in KEYS.values()]
    models = {model.__name__ for whole in (Settings, BuiltinSettings, *kinds) for model in settings_models(whole)}
    sections = models - {"Settings", "ProjectText"}  # made by loading
    sections -= {base.__name__ for base in BridgeSettings.__bases__}  # its block has the fields of both
    assert sections == shown


def settings_models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model, the one that it shares fields with, and all that stand in its fields."""
    yield model
    for base in model.__bases__:
        if issubclass(base, BaseModel) and base is not BaseModel:
            yield base
    for field in model.model_fields.values():
        kinds: list[Any] = [field.annotation]
        while kinds:
            kind = kinds.pop()
            kinds += get_args(kind)
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from settings_models(kind)


def test_the_reference_is_what_the_models_say() -> None:
    """The page and the schema are generated, so that no setting is described in two ways."""
    checked = subprocess.run(
        [sys.executable, ROOT / "scripts/reference.py", "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
