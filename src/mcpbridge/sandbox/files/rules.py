"""Which files beneath a root tools may read and write, by their names; patterns of paths. Pure.

Never written is what other programs run or obey without being asked: hooks, settings of editors and agents, start-up
files of shells. Not read, unless that is configured, is what by its name holds secrets. Names are compared as
`names.fold` has them, and as they are on the disk: the caller has resolved links before.

Patterns are `*.py`, `src/**/test_*.py`, `*.{ts,tsx}`, and take time linear in the length of the path. `*` and `?` stay
within one name, `**` stands for any number of names, `{a,b}` for either. A pattern without `/` is about single names,
one with it about the path from the root (or from where the search starts).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from itertools import pairwise

from mcpbridge.sandbox.files.names import fold

LONGEST, MOST_FORMS = 500, 64
"""Characters of a pattern, and patterns that its braces may stand for."""

_BRACES = re.compile(r"\{([^{}]*)\}")
_Names = tuple[Callable[[str], object] | None, ...]
"""What each name must look like; None: any number of names."""


class WrongGlob(ValueError):
    """No pattern of paths; the message says why."""


class Globs:
    """Some patterns, any of which may match."""

    def __init__(self, patterns: Iterable[str] = (), *, folds: bool = False) -> None:
        """`folds`: names are compared as `names.fold` has them.

        Raises:
            WrongGlob: one of them is too long, or stands for too many.
        """
        self._folds = folds
        self._names: list[re.Pattern[str]] = []
        self._paths: list[_Names] = []
        for pattern in patterns:
            for form in _forms(pattern):
                self._add(form)

    def __bool__(self) -> bool:
        return bool(self._names or self._paths)

    def matches(self, parts: Sequence[str]) -> bool:
        """The path itself is meant; patterns without `/` are about its last name."""
        parts = self._folded(parts)
        return (bool(parts) and any(name.match(parts[-1]) for name in self._names)) or any(
            _reaches(path, parts, within=False) for path in self._paths
        )

    def touches(self, parts: Sequence[str]) -> bool:
        """The path is meant, or a directory that it is in."""
        parts = self._folded(parts)
        return any(name.match(part) for name in self._names for part in parts) or any(
            _reaches(path, parts, within=True) for path in self._paths
        )

    def leads(self, parts: Sequence[str]) -> bool:
        """Something beneath this directory may be meant."""
        parts = self._folded(parts)
        return bool(self._names) or any(_states(path, parts) - {len(path)} for path in self._paths)

    def _folded(self, parts: Sequence[str]) -> Sequence[str]:
        return [fold(part) for part in parts] if self._folds else parts

    def _add(self, form: str) -> None:
        names = [name for name in form.split("/") if name not in ("", ".")]
        if not names:
            return
        if self._folds:
            names = [name.casefold() for name in names]
        if len(names) == 1 and names[0] != "**" and not form.startswith("/"):
            self._names.append(re.compile(translate(names[0])))
        else:
            self._paths.append(tuple(None if name == "**" else re.compile(translate(name)).match for name in names))


def _forms(pattern: str) -> list[str]:
    """The pattern without braces, in all its forms."""
    if len(pattern) > LONGEST:
        raise WrongGlob(f"longer than {LONGEST} characters")
    forms = [pattern]
    while any(_BRACES.search(form) for form in forms):
        forms = [
            f"{form[: found.start()]}{either}{form[found.end() :]}" if found else form
            for form in forms
            for found in [_BRACES.search(form)]
            for either in (found[1].split(",") if found else [""])
        ]
        if len(forms) > MOST_FORMS:
            raise WrongGlob(f"its braces expand to more than {MOST_FORMS} patterns")
    return forms


def _reaches(wanted: _Names, parts: Sequence[str], *, within: bool) -> bool:
    """The names lead to the end of what is wanted; `within`: or the first few of them do."""
    ways = range(1, len(parts) + 1) if within else [len(parts)]
    return bool(parts) and any(len(wanted) in _states(wanted, parts[:length]) for length in ways)


def _states(wanted: _Names, parts: Sequence[str]) -> set[int]:
    """How far in what is wanted one can be after these names."""
    states = _with_skipped(wanted, {0})
    for part in parts:
        after = set[int]()
        for state in states:
            if state < len(wanted):
                name = wanted[state]
                if name is None:
                    after.add(state)
                elif name(part):
                    after.add(state + 1)
        states = _with_skipped(wanted, after)
    return states


def _with_skipped(wanted: _Names, states: set[int]) -> set[int]:
    """The same, and where one is when `**` stands for nothing."""
    for state in sorted(states):
        at = state
        while at < len(wanted) and wanted[at] is None:
            at += 1
            states.add(at)
    return states


_OBEYED = frozenset(
    (
        # versions: hooks and configuration of a repository name programs
        *(".git", ".hg", ".svn", ".jj", ".bzr", ".gitmodules", ".gitconfig", ".husky", ".hgrc"),
        ".gitattributes",
        # agents, editors and what they start
        *(".mcp.json", "mcp.json", ".mcp", ".vscode", ".cursor", ".claude", ".claude.json", ".codex", ".gemini"),
        *(".windsurf", ".codeium", ".zed", ".continue", ".cline", ".roo", ".kiro", ".amazonq", ".idea", ".fleet"),
        *(".devcontainer", ".devcontainer.json", "claude_desktop_config.json", "mcp_config.json", "mcp_settings.json"),
        *(".cursorrules", ".windsurfrules", ".clinerules", "claude.md", "claude.local.md", "agents.md", "gemini.md"),
        # shells and sessions
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv"),
        *(".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".inputrc"),
        *(".envrc", ".xinitrc", ".xprofile", ".xsession", ".xsessionrc", ".pam_environment", ".oh-my-zsh"),
        *(".launchagents", "launchagents", "launchdaemons", "crontab"),
        # programs that read commands where they are started
        *(".vimrc", ".nvimrc", ".exrc", ".emacs", ".emacs.d", ".gdbinit", ".lldbinit", ".pdbrc", ".pythonrc.py"),
        *("sitecustomize.py", "usercustomize.py", "pyvenv.cfg"),
        *(".pre-commit-config.yaml", ".gitlab-ci.yml", ".circleci"),
    )
)
"""Names that are not written, nor anything beneath them."""

_OBEYED_PAIRS = frozenset(
    (
        *((".github", "workflows"), (".github", "actions"), (".github", "copilot-instructions.md")),
        *((".github", "instructions"), (".github", "prompts"), (".github", "agents")),
        *((".config", "fish"), (".config", "autostart")),
        *((".config", "systemd"), (".config", "nvim"), (".config", "git"), (".config", "mcpbridge")),
        *((".config", "environment.d"), (".local", "bin"), ("library", "launchagents")),
    )
)
"""The same, of two names that follow each other."""

_PRIVATE = frozenset(
    (
        *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store", ".netrc", "_netrc", ".pgpass", ".my.cnf"),
        *(".npmrc", ".pypirc", ".git-credentials", ".vault-token", ".htpasswd", "credentials.tfrc.json"),
        *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "authorized_keys"),
    )
)
"""Names of what holds secrets, or says who gets in; and everything beneath them."""

_PRIVATE_PAIRS = frozenset(
    (
        *((".git", "config"), (".git", "credentials"), (".docker", "config.json"), (".config", "gh")),
        *((".config", "gcloud"), (".config", "mcpbridge")),
    )
)
_PRIVATE_ENDS = (".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk")
_OPEN_ENV = frozenset((".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults"))

_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(\..*)?")
_SHORT = re.compile(r"[^.]{1,6}~[0-9]+(\..{0,3})?")
"""A name as Windows shortens it: `GIT~1` can be `.git`."""


class Rules:
    """What may be done beneath one root."""

    def __init__(
        self,
        *,
        deny: Iterable[str] = (),
        protect: Iterable[str] = (),
        reads_private: bool = False,
        runs: Callable[[Sequence[str]], bool] = lambda parts: False,
    ) -> None:
        """`deny`: patterns of what does not exist for tools. `protect`: of what is not written either.

        `runs`: whether what is there is run, or obeyed, by the bridge itself.

        Raises:
            WrongGlob: a pattern is none.
        """
        self._denied, self._protected = Globs(deny, folds=True), Globs(protect, folds=True)
        self._reads_private, self._runs = reads_private, runs

    def hides(self, parts: Sequence[str]) -> bool:
        """It is not shown, read or written."""
        return bool(self._denied) and self._denied.touches(parts)

    def why_unread(self, parts: Sequence[str]) -> str:
        """Why it is not read; empty: it may be."""
        if self.hides(parts):
            return "the configuration excludes it (`builtin.files.deny`)"
        if not self._reads_private and _is_private(parts):
            return "by its name it holds secrets, which are not read (`builtin.files.read_private`)"
        return ""

    def why_unwritten(self, parts: Sequence[str]) -> str:
        """Why it is not written; empty: it may be."""
        if self.hides(parts):
            return "the configuration excludes it (`builtin.files.deny`)"
        if self._protected.touches(parts):
            return "the configuration protects it (`builtin.files.protected`)"
        if _is_private(parts):
            return "by its name it holds secrets, which are not written"
        if self._runs(parts):
            return "the bridge's own tools are made of it: code, programs or documents that the configuration names"
        if _is_obeyed(parts):
            return "other programs run or obey its content, so it is never written"
        return next((why for part in parts if (why := _why_odd(part))), "")


def _is_private(parts: Sequence[str]) -> bool:
    names = [fold(part) for part in parts]
    return (
        not _PRIVATE.isdisjoint(names)
        or any(pair in _PRIVATE_PAIRS for pair in pairwise(names))
        or any(name == ".env" or (name.startswith(".env.") and name not in _OPEN_ENV) for name in names)
        or bool(names and (names[-1].endswith(_PRIVATE_ENDS) or names[-1] == ".envrc"))
    )


def _is_obeyed(parts: Sequence[str]) -> bool:
    names = [fold(part) for part in parts]
    pairs = list(pairwise(names))
    return (
        not _OBEYED.isdisjoint(names)
        or any(pair in _OBEYED_PAIRS for pair in pairs)
        or any(first.endswith(".git") and then in ("hooks", "config") for first, then in pairs)
        or bool(names and names[-1].endswith(".pth"))  # Python runs these when it starts
        or bool(names and names[-1] == "head")  # what makes a directory a repository, whose `config` git obeys
    )


def _why_odd(name: str) -> str:
    """Why a name is not given to a new file: some system takes it for another one."""
    if ":" in name or name != name.rstrip(". "):
        return "a name in it has a colon, or ends with a dot or space, which some systems take for another name"
    if _DEVICE.fullmatch(name.lower()):
        return "a name in it is that of a device on some systems"
    if _SHORT.fullmatch(name):
        return "a name in it looks like a shortened one, which can stand for another"
    return ""
