"""Sandboxes on systems unlike this one: older kernels, no name spaces, another system altogether."""

import errno
import json
import os
import platform
import sys
import textwrap
from pathlib import Path

import pytest

from mcpbridge.base.errors import ToolInactive
from mcpbridge.sandbox.isolation import bubblewrap
from mcpbridge.sandbox.isolation import launcher as launching
from mcpbridge.sandbox.isolation import seccomp as system_calls
from mcpbridge.sandbox.isolation import tier as identity
from mcpbridge.sandbox.isolation.readable_files import interpreter_places, outermost, system_places
from mcpbridge.sandbox.isolation.seccomp import Instruction
from support.sandbox.sandbox_runs import as_user, attempts, isolation, python

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there are sandboxes on Linux only")

NEITHER = (
    "import asyncio, json; from support.sandbox import sandbox_runs; "
    "print(json.dumps(asyncio.run(sandbox_runs.attempts('launcher', {}))))"
)


@on_linux
@pytest.mark.parametrize("landlock", [2, 5])
def test_with_an_older_landlock_no_way_out_is_open_either(landlock: int) -> None:
    """Debian 12 has the second version: no rule for truncation, TCP, and signals."""
    said = as_user("-c", NEITHER.format(landlock))

    open_ways, tried, is_untouched = json.loads(said.stdout or "null") or (said.stderr, 0, False)
    assert open_ways == []
    assert tried > 100
    assert is_untouched


@on_linux
async def test_with_an_older_landlock_root_is_as_safe() -> None:
    open_ways, tried, is_untouched = await attempts("launcher", 2)

    assert open_ways == []
    assert tried > 100
    assert is_untouched


def no_name_spaces() -> list[Instruction]:
    """A filter as containers have: calls that make or change name spaces fail, all else is left to us."""
    machine = platform.machine()
    column = 0 if machine == "x86_64" else 1
    refuse, allow = (0x06, 0, 0, 0x00050000 | errno.EPERM), (0x06, 0, 0, 0x7FFF0000)
    program: list[Instruction] = [(0x20, 0, 0, 0)]
    for name in ("mount", "umount2", "pivot_root", "unshare", "setns", "chroot"):
        program += [(0x15, 0, 1, system_calls._CALLS[name][column] or 0), refuse]
    program += [(0x15, 0, 1, 435), (0x06, 0, 0, 0x00050000 | errno.ENOSYS)]
    # flags of clone that ask for a name space
    program += [(0x15, 0, 3, system_calls._CALLS["clone"][column] or 0), (0x20, 0, 0, 16), (0x45, 0, 1, 0x7E020000)]
    return [*program, refuse, allow]


@on_linux
def test_where_name_spaces_are_forbidden_the_launcher_is_taken() -> None:
    """With bubblewrap alone the sandbox would vanish in containers."""
    source = """
        import asyncio, json
        from support.sandbox import sandbox_runs
        async def main():
            sandbox = sandbox_runs.isolation()
            ran = await sandbox.run(sandbox_runs.python("print(6 * 7)"))
            print(json.dumps([(await sandbox.readiness()).as_json(), ran.stdout.decode(), ran.tier]))
        asyncio.run(main())
    """
    said = as_user("-c", textwrap.dedent(source), filter=no_name_spaces())

    assert said.stdout, said.stderr
    readiness, output, tier = json.loads(said.stdout)
    assert readiness["chosen"] == tier == "launcher"
    assert readiness["tiers"][0]["tier"] == "bubblewrap"
    assert "could not be tried" in readiness["tiers"][0]["lacks"]
    assert output == "42\n"


async def test_another_system_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching.sys, "platform", "win32")
    monkeypatch.setattr(bubblewrap.sys, "platform", "win32")
    sandbox = isolation()

    with pytest.raises(ToolInactive, match="needs Linux"):
        await sandbox.run(python("print(1)"))


@on_linux
def test_no_home_directory_is_among_what_jobs_may_read() -> None:
    home = str(Path("~").expanduser())
    places = (*system_places(network=True), *interpreter_places())

    assert home not in places
    assert not any(home.startswith(place + "/") for place in places)
    assert not {"/", "/etc", "/home", "/root", "/tmp", "/var"} & set(places)


def test_of_an_installation_that_shares_its_place_only_the_parts_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`~/.local` holds keyrings as well as interpreters."""
    place = tmp_path / ".local"
    for name in ("bin", "lib", "share"):
        (place / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("prefix", "exec_prefix", "base_prefix", "base_exec_prefix"):
        monkeypatch.setattr(sys, name, str(place))

    places = [path for path in interpreter_places.__wrapped__() if path.startswith(str(tmp_path))]

    assert places == [str(place / "bin"), str(place / "lib")]


def test_places_within_others_are_left_out() -> None:
    assert outermost(["/usr/lib", "/usr", "/usr2", "/a/b", "/a/bc", "/a/b/c"]) == ("/a/b", "/a/bc", "/usr", "/usr2")


@on_linux
@pytest.mark.skipif(os.geteuid() != 0, reason="it is about root")
def test_root_without_the_right_to_change_users_stays_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    who = identity.identity_for
    tmp_path.chmod(0o777)

    assert who(["/usr"], [], []).uid is not None
    assert who(["/usr"], [], [str(tmp_path)]).uid is not None
    assert who(["/usr"], [str(tmp_path)], [str(tmp_path)]).uid is not None
    tmp_path.chmod(0o755)
    assert who(["/usr"], [str(tmp_path)], [str(tmp_path)]) == identity.Identity(is_root=True)
    monkeypatch.setattr(identity, "_capabilities", lambda: 0)
    assert who(["/usr"], [], []) == identity.Identity(is_root=True)
