"""Repositories that mean harm: whatever their configuration names, `git-cli` starts nothing of it and stays inside.

Every way is proved to work without our protection first (`CONTROL`), so that these tests can fail.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from mcpbridge.base.errors import PathRefused
from mcpbridge.tools.builtin.programs.git.git import GitCli
from mcpbridge.tools.builtin.programs.settings import GitCliSettings
from support.program_calls import NoSandbox, cli_call, plain_git, program, repository, said_by

MISSING = "0123456789012345678901234567890123456789"
SECRET = "token-of-somebody"

READS = (
    "status", "status -s -b", "status --porcelain=v2", "log", "log -p", "log --stat -2", "log --format=%G? -3", "show",
    "show signed", "show HEAD:src/a.py", "diff", "diff HEAD", "diff HEAD~1", "diff --cached", "diff --stat",
    "diff-tree -p HEAD", "blame src/a.py", "blame README.md", "grep -n token", "grep --untracked token",
    "ls-files -m", "ls-files -o", "ls-tree -r HEAD", f"cat-file -p {MISSING}", f"show {MISSING}", f"log {MISSING}",
    "rev-list --objects --all", "stash list -p", "stash show", "reflog", "branch -vv", "branch --contains v1", "tag -n",
    "for-each-ref", "shortlog -s", "describe --tags", "remote -v", "rev-parse HEAD", "worktree list",
    "check-ignore -v new.txt", "log -L 1,1:src/a.py", "log -S token", "log --notes",
)  # fmt: skip


class Way(NamedTuple):
    """One way to run or read something."""

    name: str
    config: str
    """Lines of the configuration; `{run}` notes that it ran, `{dir}` is a folder outside."""
    control: tuple[str, ...] = ()
    """An ordinary call of git that falls for it; empty: none of the reading ones does, or only on a terminal."""
    attributes: str = ""
    prepare: Callable[[Path, Path], object] | None = None


def _hooks(where: Path, run: Path) -> None:
    for name in ("post-index-change", "pre-commit", "commit-msg", "prepare-commit-msg", "post-commit", "post-checkout",
                 "reference-transaction", "pre-push", "post-merge", "post-rewrite", "pre-rebase", "pre-merge-commit",
                 "fsmonitor-watchman", "pre-auto-gc"):  # fmt: skip
        program(where / ".git" / "hooks" / name, f"exec {run}")


def _submodule(where: Path, run: Path) -> None:
    """One whose own configuration runs something, which git enters by itself to see whether it changed."""
    if (where / "sub").exists():
        return
    inner = Path(shutil.copytree(where, where / "sub", ignore=shutil.ignore_patterns("sub", "hooks")))
    plain_git(inner, "config", "core.fsmonitor", str(run))
    plain_git(where, "add", "sub")
    plain_git(where, "commit", "-q", "-m", "with a submodule")


def _listed_submodule(where: Path, run: Path) -> None:
    _submodule(where, run)
    (where / ".gitmodules").write_text('[submodule "s.x"]\n\tpath = sub\n\turl = ./x\n\tignore = none\n')


def _included(where: Path, run: Path) -> None:
    (where / ".git" / "more").write_text(f"[core]\n\tfsmonitor = {run}\n")


def _of_worktree(where: Path, run: Path) -> None:
    (where / ".git" / "config.worktree").write_text(f"[core]\n\tfsmonitor = {run}\n")


def _outer_attributes(where: Path, run: Path) -> None:
    (where / ".git" / "attr").write_text("* diff=x\n")


def _inner_attributes(where: Path, run: Path) -> None:
    (where / ".git" / "info" / "attributes").write_text("* filter=y\n")


LAZY = '[extensions]\n\tpartialClone = origin\n[remote "origin"]\n\tpromisor = true\n'
ASK = ("cat-file", "-p", MISSING)
SIGNED = ("log", "-1", "--format=%G?", "signed")

WAYS = (
    Way("core.fsmonitor", "[core]\n\tfsmonitor = {run}", ("status",)),
    Way("hooks", "", ("status",), prepare=_hooks),
    Way("core.hooksPath", "[core]\n\thooksPath = {dir}/hooks", ("status",)),
    Way("diff.external", "[diff]\n\texternal = {run}", ("diff",)),
    Way("diff.x.command", '[diff "x"]\n\tcommand = {run}', ("diff",), "* diff=x"),
    Way("diff.x.textconv", '[diff "x"]\n\ttextconv = {run}', ("log", "-p"), "* diff=x"),
    Way("diff.x.textconv in blame", '[diff "a.b=c"]\n\ttextconv = {run}', ("blame", "README.md"), "* diff=a.b=c"),
    Way("cached textconv", '[diff "x"]\n\ttextconv = {run}\n\tcachetextconv = true', ("show",), "* diff=x"),
    Way("filter.x.clean", '[filter "x"]\n\tclean = {run}\n\trequired = true', ("diff",), "* filter=x"),
    Way("filter.x.process", '[filter "x"]\n\tprocess = {run}', ("status",), "* filter=x"),
    Way("FILTER.Big.Clean", '[FILTER "Big.Name"]\n\tCLEAN = {run}', ("diff",), "* filter=Big.Name"),
    Way("filter.x.smudge", '[filter "x"]\n\tsmudge = {run}', (), "* filter=x"),
    Way("info/attributes", '[filter "y"]\n\tclean = {run}', ("diff",), prepare=_inner_attributes),
    Way("core.attributesFile", '[core]\n\tattributesFile = .git/attr\n[diff "x"]\n\ttextconv = {run}', ("diff",),
        prepare=_outer_attributes),
    Way("gpg.program", "[gpg]\n\tprogram = {run}", SIGNED),
    Way("log.showSignature", "[log]\n\tshowSignature = true\n[gpg]\n\tprogram = {run}", ("log", "signed")),
    Way("gpg.openpgp.program", '[gpg "openpgp"]\n\tprogram = {run}', SIGNED),
    Way("include.path", "[include]\n\tpath = more", ("status",), prepare=_included),
    Way("includeIf", '[includeIf "gitdir:**"]\n\tpath = more', ("status",), prepare=_included),
    Way("config.worktree", "[extensions]\n\tworktreeConfig = true", ("status",), prepare=_of_worktree),
    Way("lazy ext::", LAZY + '\turl = "ext::{run} %S"\n[protocol "ext"]\n\tallow = always', ASK),
    Way("lazy ssh", LAZY + "\turl = ssh://nowhere.invalid/x\n[core]\n\tsshCommand = {run}", ASK),
    Way("lazy uploadpack", LAZY + '\turl = .\n\tuploadpack = {run}\n[protocol "file"]\n\tallow = always', ASK),
    Way("lazy vcs", LAZY + '\tvcs = ext\n\turl = "{run} %S"\n[protocol "ext"]\n\tallow = always', ASK),
    Way("lazy git proxy", LAZY + "\turl = git://nowhere.invalid/x\n[core]\n\tgitProxy = {run}", ASK),
    Way("lazy insteadOf", LAZY + '\turl = https://nowhere.invalid/x\n[url "ext::{run} "]\n\tinsteadOf = https://\n'
        '[protocol]\n\tallow = always', ASK),
    Way("a submodule", "[diff]\n\tignoreSubmodules = none", ("status",), prepare=_submodule),
    Way("a submodule in diff", "[diff]\n\tsubmodule = diff", ("diff",), prepare=_submodule),
    Way("a listed submodule", '[submodule "s.x"]\n\tignore = none', ("status",), prepare=_listed_submodule),
    Way("core.worktree", "[core]\n\tworktree = {dir}", ("diff",)),
    Way("blame.ignoreRevsFile", "[blame]\n\tignoreRevsFile = {dir}/secret.txt", ("blame", "README.md")),
    Way("core.pager", "[core]\n\tpager = {run}\n[pager]\n\tlog = {run}\n\tstatus = {run}\n\tshow = {run}"),
    Way("alias", "[alias]\n\tstatus = !{run}\n\tlog = !{run}\n\tgrep = !{run}"),
    Way("editors", "[core]\n\teditor = {run}\n[sequence]\n\teditor = {run}"),
    Way("helpers", "[credential]\n\thelper = {run}\n[core]\n\taskPass = {run}\n\talternateRefsCommand = {run}"),
    Way("trailers", '[trailer "x"]\n\tcommand = {run}\n\tcmd = {run}\n[interactive]\n\tdiffFilter = {run}'),
    Way("tools", '[difftool "x"]\n\tcmd = {run}\n[mergetool "x"]\n\tcmd = {run}\n[tar "x"]\n\tcommand = {run}'),
    Way("trace", "[trace2]\n\tnormalTarget = {dir}/trace\n\teventTarget = {dir}/trace"),
)  # fmt: skip

CONTROL = [way for way in WAYS if way.control]


class Yard:
    """Makes such repositories."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.root, self.outside, self.mark = folder / "root", folder / "outside", folder / "ran"
        self.root.mkdir()
        (self.outside / "hooks").mkdir(parents=True)
        self.run = program(self.outside / "run", f"echo x >> {self.mark}\ncat >/dev/null 2>&1 </dev/null\nexit 1")
        program(self.outside / "hooks" / "post-index-change", f"exec {self.run}")
        (self.outside / "secret.txt").write_text(f"{SECRET}\n")
        (self.outside / "README.md").write_text(f"{SECRET}\n")
        self.git = GitCli(GitCliSettings(repositories=(str(self.root),), author="Ann <a@b.org>"), NoSandbox)
        self.model = model

    def make(self, name: str, *ways: Way) -> Path:
        where = repository(self.root / name, self.model)
        for way in ways:
            if way.prepare is not None:
                way.prepare(where, self.run)
        with (where / ".git" / "config").open("a") as config:
            for way in ways:
                config.write(f"{way.config.replace('{run}', str(self.run)).replace('{dir}', str(self.outside))}\n")
        if any(way.attributes for way in ways):
            (where / ".gitattributes").write_text("".join(f"{way.attributes}\n" for way in ways))
        (where / "README.md").write_text("# changed again\n")  # never what the index remembers
        self.mark.unlink(missing_ok=True)  # what was prepared later met the hooks of what was prepared before
        return where

    def harmed(self, output: bytes) -> bool:
        harm = self.mark.exists() or SECRET.encode() in output or (self.outside / "trace").exists()
        self.mark.unlink(missing_ok=True)
        return harm

    async def says(self, command: str, name: str) -> bytes:
        try:
            text, _ = await said_by(self.git, cli_call("git-cli", command, directory=name))
        except PathRefused as refused:
            assert "blame" in command
            text = str(refused)
        return text.encode()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a commit that has something like a signature, as the branch `signed`."""
    where = repository(tmp_path_factory.mktemp("model") / "repo")
    commit = plain_git(where, "cat-file", "commit", "HEAD").stdout.decode()
    head, _, message = commit.partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----"
    (where / ".git" / "signed").write_text(f"{head}\n{signature}\n\n{message}")
    made = plain_git(where, "hash-object", "-t", "commit", "-w", ".git/signed").stdout.decode().strip()
    plain_git(where, "branch", "signed", made)
    return where


@pytest.fixture
def yard(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setenv("HOME", str(tmp_path))
    return Yard(tmp_path, model)


async def test_ways_that_work_without_protection_do_nothing_with_it(yard: Yard) -> None:
    """Each way alone, in the command that falls for it."""
    idle: list[str] = []
    for number, way in enumerate(CONTROL):
        where = yard.make(f"r{number}", way)
        command = " ".join(way.control)
        assert not yard.harmed(await yard.says(command, where.name)), way.name
        ran = plain_git(where, *way.control)
        if not yard.harmed(ran.stdout + ran.stderr):
            idle.append(f"{way.name}: {ran.stderr.decode()}")
    assert not idle, idle


async def test_no_pair_of_a_reading_command_and_a_key_runs_anything(yard: Yard) -> None:
    """Measured with git 2.39.5 alone: a repository's own configuration ran code in 21 of 90 such pairs."""
    apart = {"core.worktree", "blame.ignoreRevsFile"}
    calm = [way for way in WAYS if not way.name.startswith("lazy") and way.name not in apart]
    worlds = [
        yard.make("all", *calm),
        yard.make("lazy", *(way for way in WAYS if way.name.startswith("lazy"))),
        yard.make("away", *(way for way in WAYS if way.name in apart)),
    ]
    for where in worlds:
        for command in READS:
            assert not yard.harmed(await yard.says(command, where.name)), f"{where.name}: {command}"
    assert len(WAYS) * len(READS) >= 175


WRITES = """
add README.md; add -A; add -u; commit -am one; commit --allow-empty -m two; commit --amend --no-edit; stash; stash pop;
checkout -b x; checkout topic; switch main; branch y; tag -a z -m z; tag -f z; merge topic --no-ff -m three;
merge --abort; reset --hard HEAD; cherry-pick topic; cherry-pick --abort; revert HEAD; revert --abort; rebase topic;
rebase --abort; checkout main -- README.md; restore README.md; rm --cached new.txt; mv README.md READ.md; stash -u;
stash drop; clean -fd; reset HEAD~1; fetch origin; pull origin main; push origin main; fetch --all; ls-remote origin;
remote show origin; remote update; remote rename origin up; remote remove up; push up main
"""
REMOTE = (
    '[remote "origin"]\n\turl = "ext::{run} %S"\n\tuploadpack = {run}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
)


async def test_what_a_person_agreed_to_runs_nothing_of_the_repository_either(yard: Yard) -> None:
    """No hook, filter, merge driver, signer, editor or helper; and `ext::` remotes are not spoken to."""
    driver = Way(
        "merge", '[merge "m"]\n\tdriver = {run}\n[commit]\n\tgpgSign = true\n[tag]\n\tgpgSign = true', (), "* merge=m"
    )
    remote = Way("remote", REMOTE + '[protocol "ext"]\n\tallow = always\n[branch "main"]\n\tmergeOptions = -s run')
    calm = [way for way in WAYS if not way.name.startswith("lazy") and "submodule" not in way.name]
    where = yard.make("w", driver, remote, *calm)
    harmed: list[str] = []
    done = 0
    commands = WRITES.split(";")
    for command in commands:
        text = await yard.says(command.strip(), where.name)
        done += b"failed with exit code" not in text
        if yard.harmed(text):
            harmed.append(command)
    assert not harmed
    assert done >= len(commands) // 2
    assert b"one" in plain_git(where, "log", "--all", "--format=%s").stdout


@pytest.mark.parametrize(
    "way", [way for way in WAYS if way.prepare in (_submodule, _listed_submodule)], ids=lambda way: way.name
)
async def test_a_submodule_whose_configuration_names_programs_is_not_entered(yard: Yard, way: Way) -> None:
    """`git add` starts `git status` in it, without the settings that it was given itself."""
    where = yard.make("outer", way)
    for command in ("add -A", "add -u", "stash", "commit -am x", "checkout topic"):
        with pytest.raises(PathRefused, match="names a program"):
            await yard.git.run(cli_call("git-cli", command, directory="outer"))
    assert not yard.harmed(b"")
    plain_git(where, "add", "-u", env={"GIT_CONFIG_COUNT": "0"})
    assert yard.harmed(b"")
    plain_git(where / "sub", "config", "--unset", "core.fsmonitor")
    assert b"ended well" in await yard.says("add -A", "outer")


async def test_submodules_that_lie_too_deep_to_look_at_are_refused(yard: Yard) -> None:
    """git would enter the seventh as well, whose configuration names a program."""
    inner = yard.make("outer")
    for _ in range(7):
        shutil.copytree(yard.model, inner / "sub")
        plain_git(inner, "add", "sub")
        inner /= "sub"
    plain_git(inner, "config", "core.fsmonitor", str(yard.run))

    with pytest.raises(PathRefused, match="nested more than"):
        await yard.git.run(cli_call("git-cli", "add -A", directory="outer"))
    assert not yard.harmed(b"")
