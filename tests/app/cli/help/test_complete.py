"""What can come next on a command line: commands, options, values, and names that nothing is started for (issue 19)."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mcpbridge.app.cli.commands import COMMANDS
from mcpbridge.app.cli.help.complete import _TABLE, Answer, answered, complete, words_of
from mcpbridge.app.cli.help.names import ConfigNames, config_names, is_safe
from mcpbridge.app.cli.main import main
from support.harness import Place, python_server
from support.programs.daemon_process import daemon

ROOT = Path(__file__).parents[4]
TABLE = json.loads(_TABLE.read_bytes())
CONFIG = """
[servers.github]
command = "no-such-program-here"
[servers.gitlab]
url = "https://example.com/mcp"
disabled = true
[servers.time]
command = "no-such-program-here"
[tools.weather]
endpoint = "https://example.com/{city}"
[profiles.coding]
servers = ["github"]
"""


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without a bridge, and a configuration that cannot be started."""
    for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "HOME"):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / name))
    config = tmp_path / "servers.toml"
    config.write_text(CONFIG)
    monkeypatch.setenv("MCPBRIDGE_CONFIG", str(config))


def after(line: str) -> Answer:
    """What can come at the end of a line."""
    return answered(words_of(line)[1:], TABLE)


def words(line: str) -> list[str]:
    return [word for word, _ in after(line).candidates]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mcpbridge li", ["list"]),
        ("mcpbridge un", ["uninstall", "untrust"]),
        ("mcpbridge --v", ["--version"]),
        ("mcpbridge nonsense --", []),
        ("mcpbridge list --ser", ["--server"]),
        ("mcpbridge list --server ", ["github", "gitlab", "time"]),
        ("mcpbridge list --server=git", ["--server=github", "--server=gitlab"]),
        ("mcpbridge list --json --j", []),
        ("mcpbridge add x --env A=b --en", ["--env"]),
        ("mcpbridge search x --detail s", ["signatures", "schemas"]),
        ("mcpbridge search x --profile ", ["coding"]),
        ("mcpbridge login g", ["github", "gitlab"]),
        ("mcpbridge login github ", []),
        ("mcpbridge doctor github g", ["gitlab"]),
        ("mcpbridge disable ", ["github", "gitlab", "time", "weather"]),
        ("mcpbridge manage w", ["weather"]),
        ("mcpbridge call ", ["github/", "gitlab/", "time/", "weather"]),
        ("mcpbridge install cursor v", ["vscode", "vscode-insiders"]),
        ("mcpbridge service st", ["status"]),
        ("mcpbridge service install --pr", ["--print"]),
        ("mcpbridge results --sea", ["--search"]),
        ("mcpbridge results s", ["show"]),
        ("mcpbridge results show --ra", ["--raw"]),
        ("mcpbridge completion ", ["bash", "zsh", "fish"]),
        ("mcpbridge serve --log-level w", ["warning"]),
        ("mcpbridge add x -- --en", []),
        ("mcpbridge restart x", []),
    ],
)
def test_what_comes_next(line: str, expected: list[str]) -> None:
    found = words(line)
    assert (sorted(found) if "completion" not in line and "detail" not in line else found) == expected


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("mcpbridge list --config ./se", "files"),
        ("mcpbridge list --config=./se", "files"),
        ("mcpbridge install --project ", "folders"),
        ("mcpbridge trust ", "files"),
        ("mcpbridge import ./", "files"),
        ("mcpbridge import cur", "words"),
    ],
)
def test_files_are_left_to_the_shell(line: str, kind: str) -> None:
    assert after(line).kind == kind


def test_every_command_is_offered() -> None:
    assert {*words("mcpbridge ")} == {*COMMANDS, "--help", "--version"}


def test_the_file_that_the_line_names_counts(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"mcpServers": {"elsewhere": {"command": "x"}}}))
    assert words(f"mcpbridge login --config {other} ") == ["elsewhere"]
    assert words(f"mcpbridge login --config={other} ") == ["elsewhere"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", [""]),
        ("mcpbridge", ["mcpbridge"]),
        ("mcpbridge ", ["mcpbridge", ""]),
        ("A=1 B= mcpbridge list ", ["mcpbridge", "list", ""]),
        (r"mcpbridge search 'two words' a\ b \"c", ["mcpbridge", "search", "two words", "a b", '"c']),
        ('mcpbridge search "open', ["mcpbridge", "search", "open"]),
        ("mcpbridge search '' x", ["mcpbridge", "search", "", "x"]),
        ("x\\", ["x\\"]),
    ],
)
def test_the_words_of_a_line(line: str, expected: list[str]) -> None:
    assert words_of(line) == expected


@pytest.mark.parametrize("name", ["$(reboot)", "a b", "a;b", "`x`", "-x", "é", "a'b", "x" * 201, "", "a\nb", "~x", "*"])
def test_a_name_that_a_shell_could_run_is_not_offered(tmp_path: Path, name: str) -> None:
    assert not is_safe(name)
    (tmp_path / "servers.toml").write_text(f"[servers.{json.dumps(name, ensure_ascii=False)}]\ncommand = 'x'\n")
    assert words("mcpbridge login ") == []


@pytest.mark.parametrize("text", ["[servers", "\xff", "servers = 3", "", "[[servers]]\n"])
def test_a_configuration_that_is_wrong_has_no_names(tmp_path: Path, text: str) -> None:
    (tmp_path / "servers.toml").write_text(text, "latin-1")
    assert words("mcpbridge login ") == []
    (tmp_path / "servers.toml").unlink()
    assert words("mcpbridge login ") == []
    assert config_names(str(tmp_path)).problem


def test_names_of_a_configuration(tmp_path: Path) -> None:
    found = ConfigNames(("github", "gitlab", "time"), ("weather",), ("coding",))
    assert config_names(str(tmp_path / "servers.toml")) == found


def test_what_a_candidate_is_stays_on_one_short_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert complete(["fish", "search", "x", "--"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "words\t--"
    assert all(line.count("\t") == 1 and len(line.partition("\t")[2]) <= 60 for line in lines)
    assert complete([]) == 0


async def test_tools_and_arguments_come_from_the_daemon_that_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = place.config({"one": python_server("plain"), "rich": python_server("rich")})
    place.env["MCPBRIDGE_CONFIG"] = str(config)
    place.env["MCPBRIDGE_STANDALONE"] = ""
    for name, value in place.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XDG_CACHE_HOME")
    async with daemon(place, config):
        assert (await place.run("list")).code == 0  # its servers have been up
        for line, expected in (
            ("mcpbridge call one__e", ["one__echo"]),
            ("mcpbridge call one/e", ["one/echo"]),
            ("mcpbridge call one/echo ", ["text="]),
            ("mcpbridge call one__echo t", ["text="]),
            ("mcpbridge call one/echo text=x ", []),
            ("mcpbridge disable one/ec", ["one/echo"]),
            ("mcpbridge read memo://o", ["memo://one"]),
            ("mcpbridge approve ", []),
        ):
            assert await asyncio.to_thread(words, line) == expected, line
    # None runs any more: what servers offered when they were up last
    assert words("mcpbridge call one__e") == []
    assert words("mcpbridge call o") == ["one/"]
    assert words("mcpbridge call one/e") == ["one/echo"]
    assert words("mcpbridge call one/echo ") == ["text="]
    # Once found, it is known without the settings, which take a while to load
    program = (
        "import sys; from mcpbridge.app.cli.main import main; main(['__complete', 'bash', 'mcpbridge call one/e']);"
        "print([name for name in sys.modules if name in ('click', 'pydantic', 'msgspec', 'anyio', 'asyncio')])"
    )
    shown = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True)
    assert shown.stdout.splitlines()[1].startswith("one/echo\t")
    assert shown.stdout.splitlines()[-1] == "[]"
    config.write_text(config.read_text().replace("[servers.one]", "[servers.two]").replace('"one"', '"two"'))
    assert words("mcpbridge call two/e") == ["two/echo"], "the file was edited"
    assert words("mcpbridge call one/e") == []


def test_the_shell_is_answered_before_anything_heavy_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    """A person waits: neither click nor the settings are needed for it."""
    assert main(["__complete", "bash", "mcpbridge call g"]) == 0
    assert capsys.readouterr().out.splitlines() == ["words\tg", "github/\tserver", "gitlab/\tserver"]
    program = (
        "import sys; from mcpbridge.app.cli.main import main; main(['__complete', 'bash', 'mcpbridge call g']);"
        "print([name for name in sys.modules if name in ('click', 'pydantic', 'msgspec', 'anyio', 'asyncio')])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_the_table_is_what_the_commands_take() -> None:
    script = ROOT / "scripts/completion_table.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
