"""Which configurations found in a working directory may be used: what is compared, where that is kept (issue 18)."""

import json
import os
import py_compile
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import ConfigError
from mcpbridge.config.load import Loaded, load, read
from mcpbridge.config.trust.content import Content, whole_content
from mcpbridge.config.trust.decisions import NotTrusted, TrustStore
from mcpbridge.config.trust.description import what_runs
from mcpbridge.config.write_servers_toml import prepared, write
from mcpbridge.library.client.open_options import read_config

SERVER = '[servers.a]\ncommand = "run-a"\nargs = ["--fast"]\n'


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of a user in the directory `work`."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return {
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


def content_of(path: Path | str = "servers.toml") -> Content:
    loaded = read(Path(path), {})
    return whole_content(loaded.settings, loaded.content)


def trust(environ: dict[str, str], path: Path | str = "servers.toml") -> TrustStore:
    store = TrustStore(environ)
    store.add(path, content_of(path))
    return store


def is_trusted(environ: dict[str, str]) -> bool:
    try:
        return load(None, environ).is_found
    except NotTrusted:
        return False


# -- which file needs it


def test_a_file_that_nobody_named_is_not_used_before_it_is_trusted(environ: dict[str, str]) -> None:
    Path("servers.toml").write_text(SERVER)
    with pytest.raises(NotTrusted) as refused:
        load(None, environ)
    assert f"mcpbridge trust {Path('servers.toml').absolute()}" in str(refused.value)
    trust(environ)
    assert load(None, environ).is_found


@pytest.mark.parametrize("how", ["option", "variable", "users", "users own directory"])
def test_a_file_that_is_named_or_the_users_own_needs_no_trust(environ: dict[str, str], how: str) -> None:
    users = Path(environ["XDG_CONFIG_HOME"]) / "mcpbridge"
    users.mkdir(parents=True)
    if how.startswith("users"):
        (users / "servers.toml").write_text(SERVER)
        if how == "users own directory":
            os.chdir(users)
        assert not load(None, environ).is_found
        return
    Path("servers.toml").write_text(SERVER)
    if how == "option":
        assert not load("servers.toml", environ).is_found
    else:
        assert not load(None, {**environ, "MCPBRIDGE_CONFIG": "servers.toml"}).is_found


def test_a_program_that_names_no_file_gets_none_that_is_not_trusted(environ: dict[str, str]) -> None:
    """`Bridge.open()` finds what commands find; a path or a table that a program gives is consent."""
    _edit("servers.toml", SERVER)()
    with pytest.raises(NotTrusted):
        read_config(None, environ)
    assert "a" in read_config("servers.toml", environ).settings.servers
    trust(environ)
    assert "a" in read_config(None, environ).settings.servers


def test_a_person_is_asked_once_and_a_no_is_not_kept(environ: dict[str, str]) -> None:
    Path("servers.toml").write_text(SERVER)
    asked: list[Loaded] = []

    def answer(is_yes: bool) -> Callable[[Loaded, TrustStore], bool]:
        def agree(loaded: Loaded, _: TrustStore) -> bool:
            asked.append(loaded)
            return is_yes

        return agree

    for _ in range(2):
        with pytest.raises(NotTrusted):
            load(None, environ, agree=answer(False))
    load(None, environ, agree=answer(True))
    load(None, environ, agree=answer(False))
    assert len(asked) == 3


# -- what counts as the same


def _edit(path: str, text: str) -> Callable[[], None]:
    def edit() -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)

    return edit


FILES = {
    "servers.toml": 'spec = ["more.json"]\n'
    '[servers.a]\ncommand = "${file:program}"\nargs = ["${file:arg}"]\n'
    '[servers.a.env]\nAPI_TOKEN = "${file:token}"\nMODE = "${file:mode}"\n'
    '[servers.b]\nurl = "http://x.invalid/"\n[servers.b.headers]\nX-Any = "${file:header}"\n'
    '[tools.t]\nfunction = "own.tool:f"\n[tools.u]\nfunction = "single:f"\n',
    "more.json": '[{"tool_id": "m", "tool_calling_config": {"protocol": "local", "executor_class": "counting.C"}}]',
    "counting.py": "class C: ...\n",
    "program": "run-a\n",
    "arg": "--fast\n",
    "token": "sec-ret-1\n",
    "mode": "fast\n",
    "header": "h\n",
    "own/__init__.py": "",
    "own/tool.py": "from . import helper\nfrom .deep.er import x\ndef f() -> None: ...\n",
    "own/helper.py": "import beside\n",
    "own/deep/er.py": "x = 1\n",
    "beside.py": "y = 1\n",
    "single.py": "import json\ntry:\n    import optional\nexcept ImportError: pass\ndef f(): ...\n",
    "other.py": "z = 1\n",
    "README.md": "hello\n",
}


@pytest.fixture
def project(environ: dict[str, str]) -> dict[str, str]:
    """A directory with all that a configuration can bring along, trusted."""
    for name, text in FILES.items():
        _edit(name, text)()
    trust(environ)
    assert is_trusted(environ)
    return environ


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("servers.toml", FILES["servers.toml"] + '[servers.c]\ncommand = "evil"\n'),
        ("servers.toml", FILES["servers.toml"] + "# a comment\n"),
        ("more.json", FILES["more.json"].replace("counting.C", "os.system")),
        ("counting.py", "evil()\n"),
        ("program", "evil\n"),
        ("arg", "--evil\n"),
        ("mode", "--require=evil\n"),
        ("own/__init__.py", "import os\n"),
        ("own/tool.py", "def f() -> None: evil()\n"),
        ("own/helper.py", "evil()\n"),
        ("own/deep/er.py", "evil()\n"),
        ("own/deep/__init__.py", "evil()\n"),
        ("beside.py", "evil()\n"),
        ("single.py", "def f(): evil()\n"),
        ("single/__init__.py", "def f(): evil()\n"),
        ("optional.py", "evil()\n"),
        ("json.py", "evil()\n"),
    ],
)
def test_what_can_choose_another_program_needs_a_new_yes(project: dict[str, str], name: str, text: str) -> None:
    before = Path(name).read_text() if Path(name).exists() else None
    _edit(name, text)()
    with pytest.raises(NotTrusted, match="has changed since it was trusted") as refused:
        load(None, project)
    assert name in str(refused.value)
    if before is None:
        Path(name).unlink()
    else:
        _edit(name, before)()
    assert is_trusted(project), "what was trusted is there again"


@pytest.mark.parametrize("name", ["token", "header", "README.md", "other.py", "new.txt", "own/new.py"])
def test_secrets_that_change_and_files_that_nothing_names_need_none(project: dict[str, str], name: str) -> None:
    _edit(name, "something else\n")()
    assert is_trusted(project)


def test_a_compiled_file_counts_that_python_takes_without_its_source(project: dict[str, str]) -> None:
    """PEP 552: of such a file Python does not ask whether it was made from the source beside it."""
    _edit("elsewhere/evil.py", "evil()\n")()
    compiled = Path("__pycache__/single.cpython-311.pyc")
    py_compile.compile("single.py", cfile=str(compiled))
    assert is_trusted(project), "Python itself writes those"
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile("elsewhere/evil.py", cfile=str(compiled), invalidation_mode=mode)
    assert not is_trusted(project)


def test_the_same_content_at_another_place_is_another_file(environ: dict[str, str], tmp_path: Path) -> None:
    _edit("servers.toml", SERVER)()
    trust(environ)
    (tmp_path / "other").mkdir()
    Path("servers.toml").rename(tmp_path / "other/servers.toml")
    os.chdir(tmp_path / "other")
    assert not is_trusted(environ), "a relative path in it leads elsewhere"


def test_a_link_stands_for_its_target_and_is_read_there(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/servers.toml").write_text('[servers.a]\ncommand = "./run"\n')
    Path("servers.toml").symlink_to(tmp_path / "mine/servers.toml")
    assert not is_trusted(environ)
    trust(environ, tmp_path / "mine/servers.toml")
    loaded = load(None, environ)
    assert loaded.settings.servers["a"].command == str(tmp_path / "mine/run"), "not that of the directory of the link"
    (tmp_path / "evil.toml").write_text('[servers.a]\ncommand = "evil"\n')
    Path("servers.toml").unlink()
    Path("servers.toml").symlink_to(tmp_path / "evil.toml")
    assert not is_trusted(environ)


def test_the_bytes_are_compared_that_were_read(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever changes the file while it is looked at wins nothing: it is read once."""
    _edit("servers.toml", SERVER)()
    trust(environ)
    times: list[str] = []
    real = Path.open

    def replaced_after_each_look(self: Path, *args: object, **more: object) -> object:
        if self.name == "servers.toml":
            times.append(str(self))
            if len(times) > 1:
                self.write_bytes(b'[servers.a]\ncommand = "evil"\n')
        return real(self, *args, **more)  # pyright: ignore

    monkeypatch.setattr(Path, "open", replaced_after_each_look)
    assert load(None, environ).settings.servers["a"].command == "run-a"
    assert len(times) == 1


# -- changes of our own


def test_what_our_own_commands_change_stays_trusted(environ: dict[str, str]) -> None:
    _edit("servers.toml", SERVER)()
    trust(environ)
    write(prepared(Path("servers.toml"), lambda text: text.replace("--fast", "--slow"), environ), environ)
    assert is_trusted(environ)
    assert load(None, environ).settings.servers["a"].args == ["--slow"]


def test_a_change_of_ours_does_not_make_trusted_what_was_not(environ: dict[str, str]) -> None:
    _edit("servers.toml", SERVER)()
    write(prepared(Path("servers.toml"), lambda text: text + "# more\n", environ), environ)
    assert not is_trusted(environ)
    trust(environ)
    _edit("servers.toml", SERVER + '[servers.evil]\ncommand = "evil"\n')()
    write(prepared(Path("servers.toml"), lambda text: text + "# more\n", environ), environ)
    assert not is_trusted(environ), "somebody else changed it before"


def test_a_file_that_we_make_is_trusted(environ: dict[str, str]) -> None:
    write(prepared(Path("servers.toml"), lambda text: SERVER, environ), environ)
    assert is_trusted(environ)


# -- the store


def test_the_store_is_the_users_alone_and_holds_no_secrets(environ: dict[str, str]) -> None:
    _edit("servers.toml", SERVER + '[servers.a.env]\nAPI_KEY = "very-secret-value"\n')()
    store = trust(environ)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    assert "very-secret-value" not in store.path.read_text()
    store.path.chmod(0o644)
    store.add("/x/servers.toml", {"/x/servers.toml": "0"})
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name != "posix", reason="file modes are those of POSIX")
def test_a_store_that_others_could_have_written_counts_for_nothing(environ: dict[str, str]) -> None:
    _edit("servers.toml", SERVER)()
    store = trust(environ)
    store.path.chmod(0o622)
    assert not is_trusted(environ)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'"x"', b'{"a": 1}', b'{"a": {"at": 1}}', b"\xff\xfe", b"[" * 100_000, b'{"a":{"files":3}}'],
)
def test_a_damaged_store_trusts_nothing_and_is_written_anew(environ: dict[str, str], data: bytes) -> None:
    _edit("servers.toml", SERVER)()
    store = trust(environ)
    store.path.write_bytes(data)
    assert not is_trusted(environ)
    trust(environ)
    assert is_trusted(environ)


def test_decisions_of_the_same_moment_are_all_kept(environ: dict[str, str], tmp_path: Path) -> None:
    store = TrustStore(environ)
    names = [str(tmp_path / f"{number}/servers.toml") for number in range(24)]

    def decide(names: list[str]) -> None:
        for name in names:
            TrustStore(environ).add(name, {name: "digest"})

    threads = [threading.Thread(target=decide, args=(names[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(store.all()) == sorted(names)
    assert store.remove(names[0])
    assert not store.remove(names[0])
    assert len(store.all()) == 23
    assert set(json.loads(store.path.read_text())) == set(names[1:])


def test_a_state_directory_that_cannot_be_written_is_told_as_an_error(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a directory should be")
    with pytest.raises(ConfigError, match="cannot be written"):
        TrustStore(environ).add("/x", {"/x": "0"})


@given(
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4),
)
def test_only_the_very_same_content_is_trusted(
    tmp_path_factory: pytest.TempPathFactory, one: dict[str, str], other: dict[str, str]
) -> None:
    store = TrustStore({"XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))})
    store.add("/x", one)
    assert store.trusts("/x", other) == (one == other and bool(one))
    assert not store.trusts("/y", one)


def test_a_person_sees_what_would_run(environ: dict[str, str]) -> None:
    _edit(
        "servers.toml",
        f'{SERVER}[servers.off]\ncommand = "x"\ndisabled = true\n[servers.web]\nurl = "https://x.invalid/mcp"\n'
        '[tools.t]\nfunction = "own:f"\n[tools.c]\ncommand = ["ls", "{path}"]\n'
        '[[hooks]]\nevent = "tool_call.before"\ncommand = ["hook"]\n',
    )()
    lines = list(what_runs(read(Path("servers.toml"), environ).settings))
    assert lines[:2] == ["server a: run-a --fast", "server web: connects to https://x.invalid/mcp"]
    assert "tool t: function own:f" in lines
    assert any(line.startswith("tool c: command ls") for line in lines)
    assert "hook: hook" in lines


def test_a_person_sees_all_that_chooses_a_program_or_carries_something_away(environ: dict[str, str]) -> None:
    """Variables can choose what a program runs, headers can carry a secret to anybody, and a long line can hide it."""
    from mcpbridge.app.cli.config.config_path import describe_what_runs

    _edit("key", "pri-vate-value")()
    _edit(
        "servers.toml",
        '[servers.a]\ncommand = "ls"\nenv = { LD_PRELOAD = "./evil.so", NODE_OPTIONS = "--require ./evil.js" }\n'
        '[servers.b]\nurl = "https://x.invalid/mcp"\nproxy = "http://evil.invalid:1"\n'
        'headers = { X-Any = "${file:key}", X-More = "${CLOUD}" }\n'
        f'[servers.c]\ncommand = "sh"\nargs = ["-c", "true{" " * 600}x{"a" * 1200}; evil"]\n'
        '[[hooks]]\nevent = "tool_call.before"\ncommand = ["hook"]\nenv = { PATH = "./bin" }\n',
    )()
    shown = describe_what_runs(read(Path("servers.toml"), {"CLOUD": "cloud-secret"}))
    reads, one, two, three, hook = shown.splitlines()
    assert reads == "  reads ${CLOUD}, ${file:key}"
    assert one.endswith(": ls, with LD_PRELOAD=./evil.so NODE_OPTIONS='--require ./evil.js'")
    assert two.endswith(" through http://evil.invalid:1, with the headers X-Any: [redacted]; X-More: [redacted]")
    assert re.search(r"… \(\d+ more characters: read the file\)$", three)
    assert hook.endswith("hook: hook, with PATH=./bin")
    assert "vate" not in shown
    assert "cloud-secret" not in shown
