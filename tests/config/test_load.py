"""Finding, reading and checking the configuration (issue 2; docs/reference/configuration.md)."""

import json
import os
from pathlib import Path

import pytest

from mcpbridge.base.errors import ConfigError
from mcpbridge.config.load import Loaded, find, load, read


def loaded(folder: Path, text: str, *, name: str = "servers.toml", **environ: str) -> Loaded:
    path = folder / name
    path.write_text(text, "utf-8")
    return read(path, environ)


def error(folder: Path, text: str, *, name: str = "servers.toml", **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, name=name, **environ)
    return str(caught.value).replace(f"{folder}/", "")


def test_a_server_needs_a_command_or_a_url_and_no_more(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        """
        [servers.time]
        command = "mcp-server-time"
        [servers.web]
        url = "https://example.com/mcp"
        """,
    ).settings
    assert settings.servers["time"].command == "mcp-server-time"
    assert settings.servers["time"].timeouts.idle == 60
    assert settings.servers["web"].url == "https://example.com/mcp"
    assert settings.source == str(tmp_path / "servers.toml")


def test_an_empty_file_is_a_bridge_without_servers(tmp_path: Path) -> None:
    found = loaded(tmp_path, "")
    assert found.settings.servers == {}
    assert "no servers" in found.warnings[0]


def test_units_are_read_where_seconds_and_bytes_are_wanted(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        """
        servers.a = { command = "a", call_timeout = "2 min", queue_timeout = 0.5 }
        limits.max_frame = "2 MiB"
        """,
    ).settings
    assert settings.servers["a"].call_timeout == 120
    assert settings.servers["a"].queue_timeout == 0.5
    assert settings.limits.max_frame == 2 * 1024**2


# -- which file


def test_the_named_file_comes_first_then_the_variable_then_the_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    for folder in (here, home / "mcpbridge"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(here)
    files = [tmp_path / "a.toml", tmp_path / "b.toml", here / "servers.toml", home / "mcpbridge" / "servers.toml"]
    for file in files:
        file.touch()
    environ = {"MCPBRIDGE_CONFIG": str(files[1]), "XDG_CONFIG_HOME": str(home)}
    assert find(str(files[0]), environ) == files[0]
    assert find(None, environ) == files[1]
    del environ["MCPBRIDGE_CONFIG"]
    assert find(None, environ).absolute() == files[2]
    files[2].unlink()
    assert find(None, environ) == files[3]
    files[3].unlink()
    with pytest.raises(ConfigError, match=r"looked for servers\.toml and .*home/mcpbridge/servers\.toml"):
        find(None, environ)


def test_a_named_file_that_is_not_there_is_an_error_and_no_other_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "servers.toml").touch()
    with pytest.raises(ConfigError, match=r"nowhere.toml: no such file \(from --config\)"):
        load("nowhere.toml", {})
    with pytest.raises(ConfigError, match=r"nowhere.toml: no such file \(from \$MCPBRIDGE_CONFIG\)"):
        load(None, {"MCPBRIDGE_CONFIG": "nowhere.toml"})
    with pytest.raises(ConfigError, match="is a directory"):
        load(str(tmp_path), {})


# -- mistakes: what, where, the nearest valid key


def test_an_unknown_key_names_file_line_and_the_nearest_valid_key(tmp_path: Path) -> None:
    text = '[servers.a]\ncommand = "a"\n\n[servers.a.tools]\nexlude = ["x"]\n'
    assert error(tmp_path, text) == "servers.toml:5: servers.a.tools.exlude: unknown key\n  Did you mean `exclude`?"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[servers.a]\ncomand = "x"', "servers.toml:2: servers.a.comand: unknown key\n  Did you mean `command`?"),
        ('[server.a]\ncommand = "x"', "servers.toml:1: server: unknown key\n  Did you mean `servers`?"),
        ('[mcpServers.a]\ncommand = "x"', "servers.toml:1: mcpServers: unknown key\n  Did you mean `servers`?"),
        (
            '[servers.a]\ncommand = "x"\ncallTimeout = 3',
            "servers.a.callTimeout: unknown key\n  Did you mean `call_timeout`?",
        ),
        ('servers.a = { command = "x", tool.b.nmae = "c" }', "servers.toml:1: servers.a.tool.b.nmae: unknown key"),
        ("[http]\nzzz = 1", "servers.toml:2: http.zzz: unknown key\n  Valid keys here: allowed_hosts, allowed_origins"),
    ],
)
def test_unknown_keys(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in error(tmp_path, text)


def test_keys_that_only_loading_sets_are_unknown_to_people(tmp_path: Path) -> None:
    text = '[servers.a]\ncommand = "a"\nunavailable = "x"'
    assert error(tmp_path, text).startswith("servers.toml:3: servers.a.unavailable: unknown key")
    assert error(tmp_path, 'source = "x"').startswith("servers.toml:1: source: unknown key")


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("disabled = true", "either `command`"),
        ('command = "a"\nurl = "https://b"', "either `command`"),
        ('command = "a"\nheaders = { A = "b" }', "`headers` go with `url`"),
        ('url = "https://b"\nargs = ["a"]', "`args` goes with `command`"),
        ('url = "ftp://b"', "expected a URL such as"),
        ('url = "https://user:hunter2@b"', "put credentials into `headers`"),
        ('url = "wss://b"\ntransport = "sse"', "a wss:// URL is one of the transport 'websocket'"),
        ('url = "https://b"\ntransport = "carrier-pigeon"', "'streamable-http', 'sse' or 'websocket'"),
        ('command = "b"\ntransport = "ws"', "the transport 'websocket' needs `url`"),
        ('url = "https://b"\ntransport = "sse"\nera = "modern"', "older than the modern era"),
        ('url = "https://b"\ntls = { key = "k.pem" }', "`key` goes with `cert`"),
        ('url = "https://b"\ntls = { ca = "c.pem", verify = false }', "choose one"),
        ('url = "https://b"\ntls = { cafile = "c.pem" }', "tls.cafile: unknown key"),
        ('command = "b"\ntls = { verify = false }', "`tls` goes with `url`"),
        ('command = "b"\nproxy = "http://p"', "`proxy` goes with `url`"),
        ('url = "https://b"\nproxy = "hunter2:3128"', "expected a proxy such as http://proxy.example.com:3128"),
        ('url = "wss://b"\nproxy = "https://p"', "http:// or socks5:// only"),
        ('url = "https://b"\ntransport = "stdio"', "needs `command`"),
        ('url = "https://b"\nheaders = { "a b" = "c" }', "headers"),
        ('url = "https://b"\nheaders = { a = "c\\nd: e" }', "headers.a"),
        (
            'command = "a"\ncall_timeout = "soon"',
            'call_timeout: expected a time such as 30, "30s", "5 min" or "1h" (found \'soon\')',
        ),
        ('command = "a"\nmax_concurrent = 0', "greater than or equal to 1 (found 0)"),
        ('command = "a"\nera = "new"', "'auto', 'legacy' or 'modern' (found 'new')"),
        ('command = ["a", "b"]', 'args`\n  Write:\n    command = "a"\n    args = ["b"]'),
        ('command = "npx -y @x/foo"', 'args`\n  Write:\n    command = "npx"\n    args = ["-y", "@x/foo"]'),
        ("command = \"sh -c 'a b'\"", '\n    command = "sh"\n    args = ["-c", "a b"]'),
        ('command = "npx --token hunter2"', '\n    command = "npx"\n    args = […]'),
        (
            'command = "a"\nretry = true',
            "retry: expected a number of tries, or a table of keys and values",
        ),
        ("command = 7", "servers.a.command: input should be a valid string (found 7)"),
        ('command = "a"\nargs = "b"', "servers.a.args: expected a list"),
        ('command = "a"\nenv = "b"', "servers.a.env: expected a table"),
        ('command = ""', "at least 1 character"),
    ],
)
def test_wrong_servers(tmp_path: Path, server: str, expected: str) -> None:
    message = error(tmp_path, f"[servers.a]\n{server}")
    assert "servers.a" in message
    assert expected in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ('"echo hi"', '["echo", "hi"]'),
        ('"echo"', '["echo"]'),
        ("\"sh -c 'a b'\"", '["sh", "-c", "a b"]'),
        ('"notify --token hunter2"', '["notify", …]'),
    ],
)
def test_the_command_of_a_hook_is_a_list(tmp_path: Path, command: str, expected: str) -> None:
    """A hook has no `args` as a server has."""
    message = error(tmp_path, f'[[hooks]]\nevent = "tool_call.before"\ncommand = {command}')
    assert message == (
        "servers.toml:3: hooks.0.command: expected a list: the program and its arguments\n"
        f"  Write:\n    command = {expected}"
    )


def test_a_program_may_have_blanks_in_its_path(tmp_path: Path) -> None:
    for path in ("/opt/my tools/x", "./my tools/x"):
        assert loaded(tmp_path, f'[servers.a]\ncommand = "{path}"').settings.servers["a"].command


def test_a_server_that_is_no_table_is_told_in_words_of_the_file(tmp_path: Path) -> None:
    message = error(tmp_path, '[servers]\na = "x"')
    assert message == "servers.toml:2: servers.a: expected a table of keys and values (found 'x')"


def test_every_unknown_key_gets_its_nearest(tmp_path: Path) -> None:
    message = error(tmp_path, '[servers.a]\ncomand = "a"\n[bridg]\nname = "x"')
    assert "servers.a.comand: unknown key\n  Did you mean `command`?" in message
    assert "servers.toml:3: bridg: unknown key\n    Did you mean `bridge`?" in message


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    message = error(tmp_path, '[servers.a]\ncommand = "a"\nmax_queued = -1\n[log]\nlevel = "loud"')
    assert "servers.toml:3: servers.a.max_queued" in message
    assert "servers.toml:5: log.level" in message


def test_of_several_tables_with_one_name_the_right_one_is_named(tmp_path: Path) -> None:
    digest = "0" * 64
    text = f'[[http.tokens]]\nname = "a"\nsha256 = "{digest}"\n\n[[http.tokens]]\nname = "b"\nsha256 = "mcpb_secret"'
    message = error(tmp_path, text)
    assert message.startswith("servers.toml:7: http.tokens.1.sha256: expected 64 hexadecimal digits")
    assert "mcpb_secret" not in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[servers.a]\ncommand = npx",
            "servers.toml:2:11: not valid TOML: invalid value\n  At `command = …`: text needs quotes.",
        ),
        ('[servers.a\ncommand = "a"', "servers.toml:1:11: not valid TOML"),
        ('{"mcpServers": {}}', "a name that ends in .json"),
        ('a = "', "servers.toml:1"),
        ('[servers.a]\ncommand = "a"\ncommand = "b"\n', "servers.toml:3:14: not valid TOML: cannot overwrite a value"),
        (f"a = {'[' * 5000}", "nested too deeply"),
    ],
)
def test_broken_toml_is_told_with_line_and_column(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in error(tmp_path, text)


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "servers.toml").write_bytes(b"# ok\n# \xff\n")
    with pytest.raises(ConfigError, match=r"servers.toml:2: not UTF-8"):
        read(tmp_path / "servers.toml", {})


@pytest.mark.parametrize("name", ["-a", "a.b", "a b", "ü", "a" * 33, ""])
def test_a_server_name_must_fit_into_a_tool_name(tmp_path: Path, name: str) -> None:
    assert "not usable as the name of a server" in error(tmp_path, f'[servers."{name}"]\ncommand = "a"')


# -- variables


def test_variables_are_expanded_wherever_a_string_stands(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    found = loaded(
        tmp_path,
        """
        [servers.a]
        command = "${PROGRAM}"
        args = ["--root=${env:ROOT}/x", "${NOPE:-fallback}", "${EMPTY:-other}", "$${PLAIN}", "$HOME"]
        env = { TOKEN = "${file:token}" }
        call_timeout = "${PATIENCE}"
        """,
        PROGRAM="prog",
        ROOT="/data",
        EMPTY="",
        PATIENCE="5 min",
    )
    server = found.settings.servers["a"]
    assert server.command == "prog"
    assert server.args == ["--root=/data/x", "fallback", "other", "${PLAIN}", "$HOME"]
    assert server.env == {"TOKEN": "from-a-file"}
    assert server.call_timeout == 300
    assert found.secrets == ("from-a-file",)


def test_what_a_variable_brings_in_is_not_expanded_again(tmp_path: Path) -> None:
    found = loaded(tmp_path, '[servers.a]\ncommand = "${A}"', A="${B}", B="no")
    assert found.settings.servers["a"].command == "${B}"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('env = { T = "${GH_TOKEN}" }', "missing variable ${GH_TOKEN} in env.T"),
        ('args = ["${file:nowhere}"]', "cannot read ${file:nowhere}: No such file or directory in args.0"),
        ('args = ["${input:key}"]', "cannot resolve ${input:key}"),
        ('args = ["${UNCLOSED"]', "lacks its closing brace"),
        ('call_timeout = "${T}"', "missing variable ${T} in call_timeout"),
        ('tools = { include = ["${T}"] }', "missing variable ${T} in tools.include.0"),
    ],
)
def test_a_missing_variable_costs_its_server_only(tmp_path: Path, line: str, reason: str) -> None:
    text = f'[servers.a]\ncommand = "a"\n{line}\n[servers.b]\ncommand = "b"'
    servers = loaded(tmp_path, text).settings.servers
    assert servers["a"].unavailable is not None
    assert reason in servers["a"].unavailable
    assert servers["b"].unavailable is None


def test_a_file_that_is_no_text_costs_its_server_only(tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\x89PNG\xff\xfe")
    (tmp_path / "large").write_text("x" * 70_000)
    for name, reason in (("picture", "not a text file"), ("large", "larger than 64 KiB"), (".", "Is a directory")):
        servers = loaded(tmp_path, f'[servers.a]\ncommand = "a"\nargs = ["${{file:{name}}}"]').settings.servers
        assert servers["a"].unavailable is not None
        assert f"cannot read ${{file:{name}}}: {reason}" in servers["a"].unavailable


@pytest.mark.parametrize("line", ['command = "${X}"', 'url = "https://${X}/mcp"', 'url = "${X}"'])
def test_a_server_whose_address_is_missing_is_off_with_a_reason(tmp_path: Path, line: str) -> None:
    server = loaded(tmp_path, f"[servers.a]\n{line}").settings.servers["a"]
    assert server.unavailable is not None
    assert server.unavailable.startswith("missing variable ${X} in ")


def test_a_mistake_beside_a_missing_variable_is_still_found(tmp_path: Path) -> None:
    assert "Did you mean `cwd`?" in error(tmp_path, '[servers.a]\ncommand = "${X}"\ncwdd = "x"')


def test_a_missing_variable_outside_of_servers_is_an_error(tmp_path: Path) -> None:
    assert error(tmp_path, '[bridge]\nname = "${X}"') == "servers.toml:2: bridge.name: missing variable ${X}"


def test_no_value_of_a_variable_stands_in_an_error(tmp_path: Path) -> None:
    text = '[servers.a]\ncommand = "a"\nmax_queued = "${SECRET}"'
    assert "hunter2" not in error(tmp_path, text, SECRET="hunter2")


def test_values_of_headers_and_env_are_known_as_secrets(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        """
        [servers.a]
        url = "https://a/${PATH_PART}"
        headers = { Authorization = "Bearer ${TOKEN}", X-Tenant = "${TENANT}", X-Plain = "plain-value" }
        [servers.b]
        command = "b"
        args = ["${API_KEY}"]
        env = { API_KEY = "written-down", HOME = "${HOME}", DEBUG = "everything" }
        """,
        TOKEN="tok-123456",
        TENANT="tenant-7",
        HOME="/home/ada",
        API_KEY="key-in-args",
        PATH_PART="segment",
    )
    assert set(found.secrets) == {"tok-123456", "tenant-7", "written-down", "key-in-args"}


def test_passwords_of_proxies_and_keys_are_known_as_secrets(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        """
        [servers.a]
        url = "https://a"
        proxy = "http://ada:${P}@proxy:3128"
        tls = { cert = "c.pem", key_password = "open-sesame" }
        """,
        P="hunt%402",
    )
    assert set(found.secrets) == {"hunt%402", "hunt@2", "open-sesame"}


def test_the_key_that_seals_states_is_known_as_a_secret(tmp_path: Path) -> None:
    text = '[servers.a]\ncommand = "a"\n[questions]\nstate_key = "written-down-here"'
    assert "written-down-here" in loaded(tmp_path, text).secrets


# -- paths


def test_certificates_are_looked_for_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    text = 'servers.a = { url = "https://a", tls = { ca = "tls/ca.pem", cert = "~/c.pem", key = "/abs/k.pem" } }'
    tls = loaded(tmp_path, text).settings.servers["a"].tls
    assert (tls.ca, tls.cert, tls.key) == (str(tmp_path / "tls/ca.pem"), "/home/ada/c.pem", "/abs/k.pem")


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        ('command = "a"', "stdio"),
        ('url = "https://a"', "streamable-http"),
        ('url = "https://a"\ntransport = "http"', "streamable-http"),
        ('url = "https://a"\ntransport = "sse"', "sse"),
        ('url = "WSS://a"', "websocket"),
        ('url = "https://a"\ntransport = "ws"', "websocket"),
    ],
)
def test_the_transport_follows_from_what_is_said(tmp_path: Path, server: str, kind: str) -> None:
    assert loaded(tmp_path, f"[servers.a]\n{server}").settings.servers["a"].kind == kind


def test_relative_paths_start_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may start the bridge anywhere."""
    monkeypatch.setenv("HOME", "/home/ada")
    servers = loaded(
        tmp_path,
        """
        [servers.a]
        command = "bin/server"
        cwd = "data"
        [servers.b]
        command = "npx"
        [servers.c]
        command = "~/bin/c"
        cwd = "/abs"
        """,
    ).settings.servers
    assert (servers["a"].command, servers["a"].cwd) == (str(tmp_path / "bin/server"), str(tmp_path / "data"))
    assert (servers["b"].command, servers["b"].cwd) == ("npx", None)
    assert (servers["c"].command, servers["c"].cwd) == ("/home/ada/bin/c", "/abs")


def test_roots_start_at_the_file_too_and_may_be_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    text = 'servers.a = { command = "a", roots = [".", "../up", "sub/x", "~/notes", "/abs", "file:///as/it/is"] }'
    server = loaded(tmp_path, text).settings.servers["a"]
    places = [tmp_path, tmp_path.parent / "up", tmp_path / "sub/x", Path("/home/ada/notes"), Path("/abs")]
    assert server.roots == [*map(str, places), "file:///as/it/is"]
    uris = [root["uri"] for root in json.loads(server.roots_result)["roots"]]
    assert uris == [*(place.as_uri() for place in places), "file:///as/it/is"]


@pytest.mark.parametrize("roots", ['"x"', "[5]", "{}"])
def test_roots_of_the_wrong_shape_are_told(tmp_path: Path, roots: str) -> None:
    assert "servers.a.roots" in error(tmp_path, f'[servers.a]\ncommand = "a"\nroots = {roots}')


def test_numbers_and_booleans_in_env_become_text(tmp_path: Path) -> None:
    server = loaded(tmp_path, 'servers.a = { command = "a", env = { PORT = 3000, DEBUG = true } }').settings.servers[
        "a"
    ]
    assert server.env == {"PORT": "3000", "DEBUG": "true"}


@pytest.mark.skipif(os.name != "posix", reason="modes")
def test_a_file_that_others_may_write_is_taken_only_if_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can put a `servers.toml` into a directory such as /tmp."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "servers.toml"
    file.write_text('[servers.x]\ncommand = "x"\n')
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "none")}
    assert find(None, environ) == Path("servers.toml")
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="others could have written it"):
        find(None, environ)
    assert find("servers.toml", environ) == Path("servers.toml")
