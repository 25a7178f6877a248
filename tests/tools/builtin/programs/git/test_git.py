"""The tool `git-cli`: what is run, asked and refused; and that nothing of an attack runs, with real git."""

import asyncio
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after

from mcpbridge.base.errors import ArgumentsRefused, BridgeError, NotPermitted, PathRefused, ToolInactive
from mcpbridge.sandbox.runner import Isolation
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.tools.builtin.programs.git import repository as git_files
from mcpbridge.tools.builtin.programs.git.git import GitCli
from mcpbridge.tools.builtin.programs.settings import GitCliSettings
from support.program_calls import NoSandbox, Recorder, cli_call, plain_git, program, repository, said_by
from support.virtual_time import pass_time

CORPUS = Path(__file__).with_name("git_arguments.txt")


class World:
    """A repository below a configured directory, and what lies outside of it."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.root, self.outside = folder / "root", folder / "outside"
        self.outside.mkdir()
        self.repository = repository(self.root / "repo", model)
        self.mark = folder / "ran"
        self.canary = program(self.outside / "git-canary", f"touch {self.mark}; exit 1")
        self.secret = self.outside / "secret.txt"
        self.secret.write_text("token-of-somebody\n")
        self.other = repository(self.outside / "other", model) / ".git"
        (self.outside / ".git").symlink_to(self.other)
        self.out = folder / "written"
        self.git = self.tool()

    def tool(self, **settings: Any) -> GitCli:
        known = GitCliSettings(**{"repositories": (str(self.root),), "author": "Bea <bea@example.org>", **settings})
        return GitCli(known, NoSandbox)

    def call(self, command: str, **more: object) -> Any:
        return cli_call("git-cli", command, **{"directory": "repo", **more})

    def filled(self, command: str) -> str:
        for name in ("canary", "outside", "secret", "out"):
            command = command.replace(f"{{{name}}}", str(getattr(self, name)))
        return command

    def harmed(self, output: bytes | str = b"") -> bool:
        """Whether something ran, was written or read; and forget it."""
        text = output.encode() if isinstance(output, str) else output
        harm = self.mark.exists() or self.out.exists() or b"token-of-somebody" in text
        self.mark.unlink(missing_ok=True)
        if self.out.is_dir():
            os.system(f"rm -rf {shlex.quote(str(self.out))}")
        self.out.unlink(missing_ok=True)
        return harm


def vectors(kind: str) -> Iterator[str]:
    for line in CORPUS.read_text().splitlines():
        if line.startswith(f"{kind} "):
            yield line[2:].replace("⏎", "\n")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repository(tmp_path_factory.mktemp("model") / "repo")


@pytest.fixture
def world(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return World(tmp_path, model)


async def test_every_attack_by_arguments_is_refused(world: World) -> None:
    """Issue 8: `git-cli` against every argument route."""
    passed: list[str] = []
    for command in vectors("A"):
        call = world.call(world.filled(command))
        assert world.git.asks(call) == ""
        try:
            text, _ = await said_by(world.git, call)
            passed.append(command)
        except (ArgumentsRefused, NotPermitted) as refused:
            text = refused.full_message()
            assert len(text) < 3000
        assert not world.harmed(text), command
    assert passed == []


async def test_what_reads_runs_and_nobody_is_asked(world: World) -> None:
    failed: list[str] = []
    for command in vectors("R"):
        call = world.call(command)
        assert world.git.asks(call) == "", command
        text, is_error = await said_by(world.git, call)
        assert text
        if is_error:
            failed.append(f"{command}: {text}")
    assert failed == [], "\n".join(failed)


async def test_what_changes_something_is_asked_about_first(world: World) -> None:
    for command in vectors("W"):
        reason = world.git.asks(world.call(command))
        assert reason.startswith("it changes something"), command
        assert str(world.repository) in reason
        assert "\n" not in reason


def test_the_list_is_as_long_as_the_bar() -> None:
    """234 cases of arguments: more may come, none may drop out unnoticed."""
    assert len(list(vectors("A"))) + len(list(vectors("R"))) + len(list(vectors("W"))) >= 234


LONG = {"daemon", "instaweb", "credential-cache", "gc", "gui", "gitk", "citool", "fetch", "filter-branch"}
"""What would stay, or take long."""


ENOUGH = 45


def test_the_attacks_are_real(world: World, model: Path) -> None:
    """Without the table many of them run something, write outside, or show what lies outside."""
    worked = 0
    config = world.repository / ".git" / "config"
    clean = config.read_text()
    for command in vectors("A"):
        if not config.parent.is_dir() or config.read_text() != clean:  # it left a trap for those that follow
            shutil.rmtree(world.repository)
            repository(world.repository, model)
        if "{" not in command and ".." not in command:
            continue  # it names nothing that could tell
        try:
            words = shlex.split(world.filled(command))
        except ValueError:
            continue
        if words[:1] and words[0] in LONG:
            continue
        if any(word.startswith(("ssh:", "git:", "http", "git@")) for word in words):
            continue
        ran = plain_git(world.repository, *(words[1:] if words[:1] == ["git"] else words))
        worked += world.harmed(ran.stdout + ran.stderr)
        if worked == ENOUGH:
            break
    assert worked == ENOUGH


async def test_what_a_person_agreed_to_is_done(world: World) -> None:
    for command in (
        "add -A",
        "commit -m 'Add a file; $(not run)\nand more'",
        "tag -a v2 -m second",
        "checkout -b other",
    ):
        text, is_error = await said_by(world.git, world.call(command))
        assert not is_error, text
    last = plain_git(world.repository, "log", "-1", "--format=%an %ae|%B").stdout.decode()
    assert last.startswith("Bea bea@example.org|Add a file; $(not run)\nand more")
    assert plain_git(world.repository, "branch", "--show-current").stdout == b"other\n"


async def test_who_commits_comes_from_the_users_configuration(world: World, tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Cy\n\temail = cy@example.org\n[core]\n\tpager = false\n")
    tool = world.tool(author="")
    text, is_error = await said_by(tool, world.call("commit -am x"))
    assert not is_error, text
    assert plain_git(world.repository, "log", "-1", "--format=%ae").stdout == b"cy@example.org\n"


async def test_output_is_cut_and_says_how_much(world: World) -> None:
    (world.repository / "long.txt").write_text("".join(f"line {n} of many\n" for n in range(9000)))
    text, is_error = await said_by(world.git, world.call("grep --untracked -h line"))
    assert not is_error
    assert 24_000 < len(text.encode()) < 33_500
    assert text.splitlines()[-2].endswith("of many")
    size = sum(len(f"line {n} of many\n") for n in range(9000))
    assert f"of {size:,} bytes" in text
    assert "are missing" in text


async def test_a_failure_is_an_error_with_the_exit_code(world: World) -> None:
    text, is_error = await said_by(world.git, world.call("show nothing-like-this"))
    assert is_error
    assert "unknown revision" in text
    assert text.endswith("[git show failed with exit code 128]")


async def test_nothing_found_is_an_answer(world: World) -> None:
    text, is_error = await said_by(world.git, world.call("grep nothing-like-this"))
    assert not is_error
    assert text == "[exit code 1: nothing found, or different]"


async def test_a_call_that_takes_too_long_is_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    noted = tmp_path / "pid"
    program(folder / "git", f'case "$*" in *--list*) exit 0;; esac; sleep 600 & echo $! >{noted}; wait')
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    with fail_after(150):
        call = asyncio.ensure_future(said_by(world.tool(timeout=30), world.call("status")))
        while not (noted.exists() and noted.read_text().endswith("\n")):
            await asyncio.sleep(0.01)
        while not call.done():  # its time begins a moment after the program
            pass_time(1)
            await asyncio.sleep(0.01)
        text, is_error = await call
        assert is_error
        assert "took longer than" in text
        while is_running(int(noted.read_text())):  # it was killed, and may need a moment to end
            await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    """Neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def test_a_missing_git_is_told_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f".:relative:{world.outside}")
    with pytest.raises(ToolInactive, match="no program `git`") as told:
        await world.git.run(world.call("status"))
    assert "Do not retry" in told.value.full_message()


async def test_passwords_in_addresses_are_not_shown(world: World) -> None:
    plain_git(world.repository, "remote", "add", "origin", "https://me:hunter2@example.org/a.git")
    text, _ = await said_by(world.git, world.call("remote -v"))
    assert "hunter2" not in text
    assert "https://***@example.org/a.git" in text


async def test_the_command_of_somebody_who_writes_no_text_is_refused(world: World) -> None:
    for command in (5, ["log"], {}, ""):
        with pytest.raises(ArgumentsRefused):
            await world.git.run(cli_call("git-cli", command, directory="repo"))


async def test_settings_can_take_writing_and_the_network_away(world: World) -> None:
    with pytest.raises(NotPermitted, match="`write`"):
        await world.tool(write=False).run(world.call("add ."))
    with pytest.raises(NotPermitted, match="`network`"):
        await world.tool(network=False).run(world.call("fetch"))
    assert world.tool(network=False).asks(world.call("fetch")) == ""


async def test_without_directories_every_call_is_refused(world: World) -> None:
    for roots in ((), (str(world.root / "not-there"),)):
        with pytest.raises(ToolInactive, match=r"director"):
            await world.tool(repositories=roots).run(world.call("status"))


async def test_only_what_lies_below_the_directories_is_reached(world: World, tmp_path: Path) -> None:
    (world.root / "link").symlink_to(world.outside)
    for directory in (
        str(world.outside),
        "/",
        "..",
        "../outside",
        "repo/../../outside",
        "link",
        "link/other",
        "nowhere",
    ):
        with pytest.raises(PathRefused):
            await world.git.run(world.call("log", directory=directory))
    (world.root / "plain").mkdir()
    with pytest.raises(PathRefused, match="no git repository"):
        await world.git.run(world.call("log", directory="plain"))  # and the search ends at the directory
    with pytest.raises(ArgumentsRefused, match="`directory` is missing"):
        await world.tool(repositories=(str(world.root), str(world.outside))).run(cli_call("git-cli", "log"))


def away(path: Path) -> Path:
    """The same path, of which what was there has gone."""
    path.rename(path.with_name("was"))
    return path


def added(git: Path, text: str) -> None:
    """More of the configuration."""
    with (git / "config").open("a") as config:
        config.write(text)


def steps(git: Path) -> Path:
    """Where the steps of a rebase under way are kept, which `git status` shows."""
    (git / "rebase-merge").mkdir()
    return git / "rebase-merge" / "git-rebase-todo"


def endless(path: Path) -> None:
    """A file that is all hole: it needs no place, and all memory of whoever reads it."""
    with path.open("wb") as file:
        file.truncate(64 << 30)


def borrowed(git: Path, line: str, inner: Path | None = None) -> None:
    """Object directories to borrow from; `inner`: what the list of the one called `more` is a link to."""
    (git / "objects" / "info" / "alternates").write_text(f"{line}\n")
    if inner is not None:
        (git / "objects" / "more" / "info").mkdir(parents=True)
        (git / "objects" / "more" / "info" / "alternates").symlink_to(inner)


SPOILED: dict[str, Callable[["World", Path], object]] = {
    "gitdir": lambda w, git: away(git).write_text(f"gitdir: {w.other}\n"),
    "relative gitdir": lambda w, git: away(git).write_text("gitdir: ../../outside/other/.git"),
    "linked .git": lambda w, git: away(git).symlink_to(w.other),
    "commondir": lambda w, git: (git / "commondir").write_text(f"{w.other}\n"),
    "alternates": lambda w, git: (git / "objects" / "info" / "alternates").write_text(f"{w.other}/objects\n"),
    "linked objects": lambda w, git: away(git / "objects").symlink_to(w.other / "objects"),
    "linked refs": lambda w, git: away(git / "refs").symlink_to(w.other / "refs"),
    "linked config": lambda w, git: away(git / "config").symlink_to(w.secret),
    "linked index": lambda w, git: away(git / "index").symlink_to(w.secret),
    "linked grafts": lambda w, git: (git / "info" / "grafts").symlink_to(w.secret),
    "linked steps": lambda w, git: steps(git).symlink_to(w.secret),
    "include": lambda w, git: added(git, f"[include]\n\tpath = {w.secret}\n"),
    "include from home": lambda w, git: added(git, "[include]\n\tpath = ~/x\n"),
    "include up": lambda w, git: added(git, "[include]\n\tpath = ../../../outside/secret.txt\n"),
    "conditional include": lambda w, git: added(git, f'[includeIf "x"]\n\tpath = {w.secret}\n'),
    "a pipe for HEAD": lambda w, git: os.mkfifo(away(git / "HEAD")),
    "a pipe for a configuration": lambda w, git: os.mkfifo(away(git / "config")),
    "an endless pointer": lambda w, git: away(git).write_text("gitdir: " + "x/" * 9000),
    "a pointer of gigabytes": lambda w, git: endless(away(git)),
    "a common directory of gigabytes": lambda w, git: endless(git / "commondir"),
    "alternates of gigabytes": lambda w, git: endless(git / "objects" / "info" / "alternates"),
    "modules of gigabytes": lambda w, git: endless(git.parent / ".gitmodules"),
    "a pipe for alternates": lambda w, git: os.mkfifo(git / "objects" / "info" / "alternates"),
    "quoted alternates": lambda w, git: borrowed(git, '"\\056\\056/../../../outside/other/.git/objects"'),
    "linked alternates of another": lambda w, git: borrowed(git, "more", inner=w.secret),
    "too many alternates": lambda w, git: borrowed(git, "\n".join(f"x{n}" for n in range(101))),
    "too many settings": lambda w, git: added(git, "[a]\n" + f"\tb = {'c' * 60}\n" * 60_000),
    "a broken configuration": lambda w, git: (git / "config").write_text("[core\n"),
    "too many drivers": lambda w, git: (git / "config").write_text(
        "".join(f'[filter "f{n}"]\n\tclean = x\n' for n in range(2100))
    ),
    "endless names": lambda w, git: (git / "config").write_text(
        "".join(f'[filter "{n}{"f" * 900}"]\n\tclean = x\n' for n in range(400))
    ),
}


@pytest.mark.parametrize("name", SPOILED)
async def test_a_repository_that_leads_elsewhere_is_refused(world: World, name: str) -> None:
    SPOILED[name](world, world.repository / ".git")
    for command in ("log", "status", "add -A"):
        with fail_after(60), pytest.raises(PathRefused) as refused:
            await world.git.run(world.call(command))
        assert not world.harmed(refused.value.full_message())


async def test_more_entries_than_an_honest_repository_has_are_not_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_files, "_MOST_ENTRIES", 200)
    await said_by(world.git, world.call("log"))
    for number in range(201):
        (world.repository / ".git" / "info" / str(number)).symlink_to("x")

    with pytest.raises(PathRefused, match="more than 200 entries"):
        await world.git.run(world.call("log"))


async def test_a_repository_is_looked_at_beside_the_event_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    scandir = os.scandir

    def noted(path: Any) -> Any:
        if str(path).startswith(str(world.root)):
            threads.add(threading.get_ident())
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)
    await world.git.run(world.call("add -A"))

    assert threads
    assert threading.get_ident() not in threads


async def test_linked_trees_subdirectories_and_bare_repositories_work(world: World) -> None:
    plain_git(world.repository, "worktree", "add", "-q", "../linked", "topic")
    plain_git(world.root, "clone", "-q", "--bare", "repo", "bare.git")
    plain_git(world.root, "clone", "-q", "--shared", "repo", "borrower")
    for directory, shows in (("linked", "topic"), ("repo/src", "main"), ("bare.git", "main"), ("borrower", "main")):
        text, is_error = await said_by(world.git, world.call("rev-parse --abbrev-ref HEAD", directory=directory))
        assert (text, is_error) == (shows, False)
        text, is_error = await said_by(world.git, world.call("log --oneline", directory=directory))
        assert not is_error
    text, _ = await said_by(world.git, world.call("diff --stat --relative", directory="repo/src"))
    assert "README" not in text


async def test_in_a_sandbox_reads_get_the_repository_read_only_and_no_network(world: World) -> None:
    runner = Recorder(stdout=b"seen")
    tool = GitCli(GitCliSettings(repositories=(str(world.root),), author="A <a@b.c>"), lambda: runner)
    await tool.run(world.call("status"))
    for job in runner.jobs:
        assert not job.access.network
        assert job.access.read_write == ()
        assert str(world.repository) in job.access.read_only
        assert job.env["GIT_ALLOW_PROTOCOL"] == "none"
        assert "HOME" not in job.env
    runner.jobs.clear()
    await tool.run(world.call("add -A"))
    assert str(world.repository) in runner.jobs[-1].access.read_write
    assert not runner.jobs[-1].access.network
    await tool.run(world.call("fetch origin"))
    assert runner.jobs[-1].access.network
    assert runner.jobs[-1].env["GIT_ALLOW_PROTOCOL"] == "https:ssh"


async def test_that_there_was_no_sandbox_is_told_or_refused(world: World) -> None:
    for sandbox in ("prefer", "never"):
        result = (await world.tool(sandbox=sandbox).run(world.call("status"))).value()
        assert result["_meta"] == {"mcpbridge/sandbox": "off"}
    with pytest.raises(ToolInactive, match="sandbox"):
        await world.tool(sandbox="require").run(world.call("status"))


async def test_the_users_helper_knows_passwords_and_that_of_the_repository_does_not(world: World) -> None:
    runner = Recorder(stdout=b"file:c\0credential.https://example.org.helper\nx\0file:c\0user.email\nx\0")
    settings = GitCliSettings(repositories=(str(world.root),), credential_helper="store")
    await GitCli(settings, lambda: runner).run(world.call("ls-remote origin"))
    env = runner.jobs[-1].env
    count = int(env["GIT_CONFIG_COUNT"])
    pairs = [(env[f"GIT_CONFIG_KEY_{n}"], env[f"GIT_CONFIG_VALUE_{n}"]) for n in range(count)]
    assert ("credential.https://example.org.helper", "") in pairs
    assert [value for key, value in pairs if key == "credential.helper"] == ["", "store"]


def test_refusals_teach(world: World) -> None:
    def told(command: str) -> str:
        with pytest.raises(BridgeError) as refused:
            world.git._verdict(world.call(command))
        return refused.value.full_message()

    assert "did you mean --oneline" in told("log --onelin")
    assert "did you mean status" in told("statsu")
    assert "there are -n" in told("log --nope")
    assert "paths with `..`" in told("log -- ../x")
    assert "start with the sub-command" in told("-C /x log")
    assert "submodule" in told("submodule update")
    assert "another program" in told("log --ext-diff")
    assert "no pipes" in told("log | head")


@pytest.mark.skipif(sys.platform != "linux", reason="the sandboxes tried here are those of Linux")
async def test_in_a_real_sandbox_git_reads_and_writes_the_repository(world: World) -> None:
    isolation = Isolation(SandboxSettings())
    if await isolation.why_none() is not None:
        pytest.skip("no sandbox is ready here")
    settings = GitCliSettings(repositories=(str(world.root),), author="A <a@b.c>", sandbox="require")
    tool = GitCli(settings, lambda: isolation)
    for command, shows in (("log --oneline", "the three"), ("add -A", "ended well"), ("commit -m four", "four")):
        result = (await tool.run(world.call(command))).value()
        assert shows in result["content"][0]["text"]
        assert result["_meta"]["mcpbridge/sandbox"] in ("bubblewrap", "launcher")


def test_settings_are_checked() -> None:
    for wrong in ({"repositories": [""]}, {"author": "Ann"}, {"author": "Ann <a\n@b>"}, {"timeout": 0}, {"nothing": 1}):
        with pytest.raises(ValueError, match=r"repositories|author|timeout|nothing"):
            GitCliSettings.model_validate(wrong)
    known = GitCliSettings.model_validate({"repositories": ["~/src"], "timeout": "2 min", "max_output": "64 KiB"})
    assert Path(known.repositories[0]).is_absolute()
    treated = GitCli(known, NoSandbox).treatment
    assert (treated.permission, treated.call_timeout) == ("allow", 125)


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (b"https://ghp_secret@github.com/x/y", b"https://***@github.com/x/y"),
        (b"https://user:pa@ss@host/x", b"https://***@host/x"),
        (b"ssh://git@host/x and git@host:x", b"ssh://git@host/x and git@host:x"),
        (b"https://registry.example/@scope/name", b"https://registry.example/@scope/name"),
    ],
)
def test_credentials_in_addresses_are_masked_and_nothing_else(told: bytes, shown: bytes) -> None:
    """A token often stands as the user name, which has no password."""
    from mcpbridge.tools.builtin.programs.run import _PASSWORD

    assert _PASSWORD.sub(b"***", told) == shown
