"""Secrets that are written out, and trust given away, are told of; the secrets themselves never are."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.doctor.config_file import Source, about_configuration, secret_arguments
from mcpbridge.app.doctor.finding import Finding
from mcpbridge.config.load import read

TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ456789"


def findings(folder: Path, text: str, **environ: str) -> dict[str, Finding]:
    """By code, of a configuration with this text."""
    file = folder / "servers.toml"
    file.write_text(text)
    file.chmod(0o600)
    loaded = read(file, environ)
    found = {one.code: one for one in about_configuration(loaded.settings, Source.read(str(file)))}
    assert TOKEN not in repr(found)
    return found


def test_a_secret_that_is_written_out_is_told_with_its_line(tmp_path: Path) -> None:
    text = f'[servers.a]\ncommand = "x"\nenv = {{ LEVEL = "debug", GITHUB_TOKEN = "{TOKEN}" }}\n'
    found = findings(tmp_path, text)
    assert found.keys() == {"secret-written-out"}
    one = found["secret-written-out"]
    assert one.where == f"{tmp_path / 'servers.toml'}:3"
    assert "${GITHUB_TOKEN}" in one.fix


def test_a_header_keeps_its_scheme(tmp_path: Path) -> None:
    text = f'[servers.a]\nurl = "https://example.com"\nheaders.Authorization = "Bearer {TOKEN}"\n'
    assert '"Bearer ${AUTHORIZATION}"' in findings(tmp_path, text)["secret-written-out"].fix


def test_variables_paths_and_plain_values_are_no_secrets(tmp_path: Path) -> None:
    text = (
        '[servers.a]\ncommand = "x"\nenv = { API_KEY = "${API_KEY}", KEY_FILE = "/etc/a.pem", AUTH_TYPE = "oauth2" }\n'
        '[servers.b]\ncommand = "x"\nargs = ["--token-file", "/etc/token-of-mine", "--auth", "none", "--verbose"]\n'
    )
    assert findings(tmp_path, text, API_KEY=TOKEN) == {}


def test_secrets_among_arguments_are_seen_by_everybody(tmp_path: Path) -> None:
    for args in (f'["--api-key", "{TOKEN[4:]}"]', f'["--token={TOKEN[4:]}"]', f'["{TOKEN}"]', '["--api-key", "${K}"]'):
        found = findings(tmp_path, f'[servers.a]\ncommand = "x"\nargs = {args}\n', K=TOKEN)
        assert found.keys() == {"secret-in-args"}, args


def test_a_file_with_secrets_is_private(tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    file.write_text(f'[servers.a]\ncommand = "x"\nenv.API_KEY = "{TOKEN}"\n')
    file.chmod(0o644)
    found = [one.code for one in about_configuration(read(file, {}).settings, Source.read(str(file)))]
    assert found == ["secret-written-out", "config-readable"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('[servers.a]\nurl = "https://x.example"\ntls.verify = false\n', "tls-not-verified"),
        ('[servers.a]\nurl = "https://x.example/mcp?api_key=0123456789abcdef"\n', "secret-in-url"),
        ('[servers.a]\nurl = "http://x.example"\nheaders.X-Api-Key = "${K}"\n', "secret-unprotected"),
        ('[servers.a]\ncommand = "x"\ninherit_env = true\n', "environment-handed-over"),
        ('[daemon]\nhttp = "0.0.0.0:8808"\n', "http-open"),
        ('[daemon]\nhttp = "bridge.lan:8808"\n', "http-open"),
    ],
)
def test_what_is_careless_is_told(tmp_path: Path, text: str, code: str) -> None:
    assert code in findings(tmp_path, text, K="value-of-k")


@pytest.mark.parametrize("address", ["127.0.0.1:8808", "[::1]:8808", "localhost:1", ":8808", "8808", "unix:/tmp/x"])
def test_where_the_token_of_this_user_is_asked_for_nothing_is_careless(tmp_path: Path, address: str) -> None:
    assert findings(tmp_path, f'[daemon]\nhttp = "{address}"\n') == {}


def test_what_is_on_this_machine_needs_no_tls(tmp_path: Path) -> None:
    text = '[servers.a]\nurl = "http://127.0.0.1:1/mcp"\nheaders.X-Api-Key = "${K}"\n'
    assert findings(tmp_path, text, K="value-of-k") == {}


def test_servers_of_other_programs_files_are_looked_at_too(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(
        '{\n  "mcpServers": {\n    "a": {\n      "command": "x",\n      "env": {"MY_SECRET": "0123456789"}\n}}}'
    )
    file.chmod(0o600)
    [one] = about_configuration(read(file, {}).settings, Source.read(str(file)))
    assert (one.code, one.where) == ("secret-written-out", f"{file}:5")


@given(st.lists(st.text(max_size=30), max_size=6))
def test_arguments_may_be_anything(args: list[str]) -> None:
    assert set(secret_arguments(args)) <= {piece for word in args for piece in (word, word.partition("=")[2])}
