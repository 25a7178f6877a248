"""Rules and hooks that name servers which there are not: told with file, line, key and the nearest name."""

from pathlib import Path

import pytest

from mcpbridge.base.errors import ConfigError
from mcpbridge.config.load import Loaded, read

SERVERS = '[servers.deeds]\ncommand = "a"\n[servers.github]\nurl = "https://b"\ndisabled = true\n'
RULE = '[[permissions]]\npermission = "deny"\n'
HOOK = '[[hooks]]\nevent = "tool_call.before"\ncommand = ["a"]\n'


def loaded(folder: Path, text: str) -> Loaded:
    path = folder / "servers.toml"
    path.write_text(SERVERS + text)
    return read(path, {})


def error(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as wrong:
        loaded(folder, text)
    return str(wrong.value).replace(f"{folder}/", "")


@pytest.mark.parametrize("section", [RULE, HOOK], ids=["permissions", "hooks"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('servers = ["deed"]', "servers: no server is called 'deed'\n  Did you mean `deeds`?"),
        ('servers = ["deeds", "Deeds"]', "servers: no server is called 'Deeds'\n  Did you mean `deeds`?"),
        ('servers = ["q"]', "servers: no server is called 'q'\n  There are: deeds, github."),
        (
            'tools = ["deed/pay"]',
            "tools: no server is called 'deed' (found 'deed/pay')\n  Did you mean `deeds/pay`?",
        ),
        ('tools = ["gihub/*"]', "tools: no server is called 'gihub' (found 'gihub/*')\n  Did you mean `github/*`?"),
        (
            'tools = ["deeds__*"]',
            "the name that clients see (found 'deeds__*')\n  Did you mean `deeds/*`?",
        ),
        ('tools = ["deeds__get_note"]', "Did you mean `deeds/get_note`?"),
    ],
)
def test_a_server_that_there_is_not_is_an_error(tmp_path: Path, section: str, line: str, expected: str) -> None:
    message = error(tmp_path, section + line)
    key = "permissions.0" if section == RULE else "hooks.0"
    assert message.startswith(f"servers.toml:{8 if section == RULE else 9}: {key}.")
    assert expected in message


@pytest.mark.parametrize("section", [RULE, HOOK], ids=["permissions", "hooks"])
@pytest.mark.parametrize(
    "line",
    [
        'servers = ["deeds"]',
        'servers = ["github"]',  # switched off is not unknown
        'servers = ["*"]',
        'tools = ["deeds/*", "deeds/a__b", "*/pay", "git*/x", "d?eds/x", "pay", "pay__*", "*__pay"]',
    ],
)
def test_what_may_be_meant_passes_without_a_word(tmp_path: Path, section: str, line: str) -> None:
    found = loaded(tmp_path, section + line)
    assert found.warnings == ()


def test_wildcards_may_be_for_servers_to_come_but_are_told_of(tmp_path: Path) -> None:
    text = RULE + 'servers = "gti*"\n' + HOOK + 'tools = ["gti*/*"]'
    assert [warning.replace(f"{tmp_path}/", "") for warning in loaded(tmp_path, text).warnings] == [
        "servers.toml:8: permissions.0.servers: no server has a name like 'gti*'",
        "servers.toml:12: hooks.0.tools: no server has a name like 'gti*' (found 'gti*/*')",
    ]


def test_all_of_them_are_told_at_once(tmp_path: Path) -> None:
    message = error(tmp_path, RULE + 'servers = "deed"\n' + RULE + 'tools = ["q/x"]')
    assert "servers.toml:8: permissions.0.servers: no server is called 'deed'" in message
    assert "servers.toml:11: permissions.1.tools: no server is called 'q'" in message


def test_without_servers_rules_are_about_nothing(tmp_path: Path) -> None:
    path = tmp_path / "servers.toml"
    path.write_text(RULE + 'servers = "x"')
    with pytest.raises(ConfigError, match=r"There are: none\."):
        read(path, {})


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ('["deed"]', "no server is called 'deed'\n  Did you mean `deeds`?"),
        ('["github", "q"]', "no server is called 'q'\n  There are: deeds, github, vault."),
        ('["*"]', "expected the name of a server, without wildcards (found '*')\n  There are: deeds, github, vault."),
    ],
)
def test_secrets_go_to_servers_that_there_are(tmp_path: Path, names: str, expected: str) -> None:
    """Issue 22: `secrets_to` of a server that there is not would silently hold secrets back."""
    vault = '[servers.vault]\ncommand = "c"\n'
    assert error(tmp_path, f"{vault}secrets_to = {names}\n") == f"servers.toml:8: servers.vault.secrets_to: {expected}"
    assert loaded(tmp_path, f'{vault}secrets_to = ["deeds", "github"]\n').warnings == ()
