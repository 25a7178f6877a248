"""The pieces of the daemon that decide something: hellos, variables, its log, what service managers get."""

import json
import os
import plistlib
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.cli.daemon.logs import readable
from mcpbridge.app.daemon.client_variables import adopted, more_places
from mcpbridge.app.daemon.handshake import Hello, HelloRefused, check, project_uri, read_hello
from mcpbridge.app.daemon.log_rotation import OLD_ENDING, file_of, rotate
from mcpbridge.app.daemon.service_manager import Supervision, take
from mcpbridge.app.daemon.service_units import Service, launchd_plist, systemd_service, systemd_socket
from mcpbridge.app.daemon.socket_and_lock import hold
from mcpbridge.app.stdio_proxy import handshake as shim_hello
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.load import read

# -- hello


@given(
    st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_whatever_comes_first_is_a_hello_or_refused(line: bytes) -> None:
    try:
        assert isinstance(read_hello(line), Hello)
    except HelloRefused as refused:
        said = json.loads(refused.line)
        assert said["mcpbridge"] == 1
        assert said["code"]
        assert said["error"]


@given(st.dictionaries(st.text(min_size=1), st.text()), st.text(), st.text())
def test_what_a_shim_says_is_understood(environ: dict[str, str], server: str, profile: str) -> None:
    said = read_hello(shim_hello.hello(environ, "/tmp", project="/work", server=server, profile=profile))
    assert (said.server, said.profile, said.project, said.pid) == (server, profile, "/work", os.getpid())
    assert said.environ.items() <= environ.items()


def test_a_refusal_and_the_last_line_are_told_from_messages() -> None:
    with pytest.raises(HelloRefused) as refused:
        check(Hello(server="x"), servers=["y"], profiles=[])
    assert isinstance(shim_hello.read(refused.value.line), shim_hello.Refusal)


def test_only_whole_paths_are_projects() -> None:
    assert project_uri("/some where") == "file:///some%20where"
    assert project_uri("relative") == ""
    assert project_uri("") == ""


# -- variables


def test_only_variables_that_are_missing_are_taken_over(tmp_path: Path) -> None:
    config = tmp_path / "servers.toml"
    config.write_text(
        '[servers.a]\ncommand = "x"\nenv = { A = "${THERE}", B = "${MISSING_ONE}${MISSING_TWO}" }\n'
        '[servers.b]\nurl = "https://${MISSING_ONE}.example"\n[servers.c]\ncommand = "${file:nowhere}"\n'
    )
    missing = read(config, {"THERE": "1"}).missing
    assert missing == {"MISSING_ONE", "MISSING_TWO"}
    assert adopted(missing, {"THERE": "2", "MISSING_ONE": "one", "PATH": "/"}) == {"MISSING_ONE": "one"}


# -- the log


def test_a_large_log_is_put_aside_and_one_old_one_kept(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        assert file_of(descriptor) == path
        for number in range(3):
            os.write(descriptor, b"%d" % number * 100)
            assert rotate(path, descriptor, largest=100)
            assert not rotate(path, descriptor, largest=100)
        assert path.read_bytes() == b""
        assert path.with_name(path.name + OLD_ENDING).read_bytes() == b"2" * 100
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.close(descriptor)


def test_what_is_no_file_is_not_rotated(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    try:
        assert file_of(write_end) is None
    finally:
        os.close(read_end)
        os.close(write_end)


def test_lines_of_the_log_are_shown_as_people_read_them() -> None:
    line = json.dumps({"upstream": "a b", "tools": 3, "event": "upstream ready", "level": "info", "exception": "x\ny"})
    assert readable(line) == 'info     upstream ready upstream="a b" tools=3\n    x\n    y'
    assert readable("mcpbridge: no") == "mcpbridge: no"
    assert readable("[1]") == "[1]"


# -- service managers


def test_what_systemd_hands_over_is_taken_out_of_the_environment() -> None:
    environ = {"NOTIFY_SOCKET": "/run/n", "LISTEN_PID": "7", "LISTEN_FDS": "0", "JOURNAL_STREAM": "1:2", "PATH": "/"}
    found = take(environ, pid=7, stderr=(1, 2))
    assert found == Supervision("/run/n", (), journal=True)
    assert found.is_supervised
    assert environ == {"PATH": "/"}
    assert not take({"LISTEN_PID": "8", "LISTEN_FDS": "1"}, pid=7, stderr=(1, 2)).is_supervised, "meant for another"


def test_notices_go_to_abstract_sockets_too() -> None:
    name = f"mcpbridge-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(f"\0{name}")
        Supervision(f"@{name}").ready("well")
        assert notices.recv(100) == b"READY=1\nSTATUS=well"
    Supervision(f"@{name}").stopping()  # nobody is there: no matter


def service(config: Path, **more: Any) -> Service:
    return Service("mcpbridge", config, ["/usr/bin/env"], '/bin:/a "b"%', config.parent / "environment", **more)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    folder = tmp_path / "100% of $HOME"
    folder.mkdir()
    (tmp_path / "mcpbridge.service").write_text(systemd_service(service(folder / "a b.toml", ends_when_idle=True)))
    (tmp_path / "mcpbridge.socket").write_text(systemd_socket(service(folder / "a b.toml"), tmp_path / "s.sock"))
    units = [str(tmp_path / f"mcpbridge.{kind}") for kind in ("service", "socket")]
    runtime = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    words = ["systemd-analyze", "--user", "--man=no", "--generators=no", "verify", *units]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **runtime}, check=False)
    complaints = [line for line in done.stderr.splitlines() if "mcpbridge" in line]
    assert complaints == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_unit_for_the_whole_machine(tmp_path: Path) -> None:
    """That of `deploy/`, with a program that is there in place of ours."""
    text = (Path(__file__).parents[3] / "deploy" / "mcpbridge.service").read_text()
    unit = tmp_path / "mcpbridge.service"
    unit.write_text(text.replace("/usr/local/bin/mcpbridge ", "/usr/bin/env "))
    words = ["systemd-analyze", "--man=no", "--generators=no", "verify", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "mcpbridge" in line] == []


def test_launchd_gets_the_same_command(tmp_path: Path) -> None:
    made = launchd_plist(service(tmp_path / "servers.toml", http="8808"), tmp_path / "log", {"TOKEN": "x"})
    told = plistlib.loads(made)
    assert told["ProgramArguments"][1:] == ["daemon", "--config", str(tmp_path / "servers.toml"), "--http", "8808"]
    assert told["EnvironmentVariables"]["TOKEN"] == "x"


# -- the place


def test_what_is_handed_over_must_be_what_it_should(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file, pytest.raises(ConfigError, match="no listening Unix socket"):
        hold(tmp_path, {}, Supervision(), listen_fd=file.fileno(), lock_fd=file.fileno())


def test_a_socket_of_the_service_manager_stays_in_the_file_system(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        environ, handed = {"XDG_RUNTIME_DIR": str(runtime)}, Supervision(sockets=(os.dup(listener.fileno()),))
        held = hold(tmp_path / "c", environ, handed, listen_fd=None, lock_fd=None)
        assert held is not None
        again = Supervision(sockets=(os.dup(listener.fileno()),))
        assert hold(tmp_path / "c", environ, again, listen_fd=None, lock_fd=None) is None, "the lock is held"
        assert "--managed-socket" in held.hand_over()
        held.let_go()
        assert path.exists()


def test_directories_of_programs_are_added_at_the_end() -> None:
    assert more_places("/usr/bin:/bin", "/opt/bin:/bin:relative::/opt/bin:/x") == "/usr/bin:/bin:/opt/bin:/x"
    assert more_places("/usr/bin", "/usr/bin") is None
    assert more_places("", "/a") == "/a"
    assert more_places("/a", ":".join(f"/{number}" for number in range(300))) is None
