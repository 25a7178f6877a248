"""Settings and variables with which nothing that a repository says starts a program or reaches outside. Pure.

A repository's configuration is as untrusted as its content: it can name filters, differs, hooks, editors, pagers, ssh
commands and helpers. So git gets an environment made anew, in which fixed settings and, for every key of the
repository's own configuration that could name a program or a file, a neutral value come last, where they win.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mcpbridge.base.errors import PathRefused

LISTING = ("config", "--list", "-z", "--show-origin", "--includes")
"""Reads a repository's configuration, for `entries_of`; it reads, and starts nothing."""

MOST = 2000
"""Keys that may be neutralised: more is no honest configuration, and the environment has its bounds."""

_MOST_CHARACTERS = 256 << 10
"""Of all these keys together, for the same reason."""

_NOTHING = "/dev/null"
_SSH = "ssh -oBatchMode=yes -oPermitLocalCommand=no -oClearAllForwardings=yes"

_FIXED: Mapping[str, str] = {
    "core.fsmonitor": "false",
    "core.hooksPath": _NOTHING,
    "core.pager": "cat",
    "core.editor": ":",
    "core.askPass": "",
    "core.sshCommand": _SSH,
    "core.attributesFile": _NOTHING,
    "core.excludesFile": _NOTHING,
    "core.untrackedCache": "false",
    "sequence.editor": ":",
    "credential.helper": "",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "tag.forceSignAnnotated": "false",
    "push.gpgSign": "false",
    "gpg.program": "false",
    "gpg.openpgp.program": "false",
    "gpg.x509.program": "false",
    "gpg.ssh.program": "false",
    "gpg.ssh.defaultKeyCommand": "false",
    "log.showSignature": "false",
    "merge.verifySignatures": "false",
    "blame.ignoreRevsFile": "",
    "diff.orderFile": _NOTHING,
    "mailmap.file": _NOTHING,
    "diff.ignoreSubmodules": "all",
    "diff.submodule": "short",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "push.recurseSubmodules": "no",
    "grep.fallbackToNoIndex": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "http.sslVerify": "true",
    "http.saveCookies": "false",
    "advice.detachedHead": "false",
    "color.ui": "false",
    "column.ui": "never",
    "core.quotePath": "false",
}
"""Settings of every run."""

_NEUTRAL: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), value)
    for pattern, value in (
        (r"filter\..*\.(clean|smudge|process)", ""),
        (r"filter\..*\.required", "false"),
        (r"diff\.(.*\.)?(textconv|command|external)", "false"),
        (r"diff\..*\.cachetextconv", "false"),
        (r"merge\..*\.driver", "false"),  # it fails, and leaves a conflict: an empty one would take one side in silence
        (r"credential\..*\.?helper", ""),
        (r"credential\..*interactive", "false"),
        (r"gpg\.(.*\.)?(program|defaultkeycommand)", "false"),
        (r"trailer\..*\.(cmd|command)", "true"),
        (r"remote\..*\.uploadpack", "git-upload-pack"),
        (r"remote\..*\.receivepack", "git-receive-pack"),
        (r"remote\..*\.(vcs|proxy)", ""),
        (r"submodule\..*\.update", "none"),
        (r"submodule\..*\.ignore", "all"),
        (r"submodule\..*\.fetchrecursesubmodules", "false"),
        (r"branch\..*\.mergeoptions", ""),
        (r"http\..*sslverify", "true"),
        (r"http\..*savecookies", "false"),
        (r"http\..*(proxy|cookiefile|sslcert|sslkey|pinnedpubkey)", ""),
        (r"pager\..*", "false"),
        (r"(difftool|mergetool|guitool|browser|man)\..*\.(cmd|path)", "false"),
        (r"tar\..*\.command", "false"),
        (r"core\.(alternaterefscommand)", "true"),
        (r"core\.gitproxy", ""),
        (r"gc\.recentobjectshook", "true"),
        (r"hook\..*\.command", "true"),  # from git 2.54 on hooks stand in the configuration as well
        (r"hook\..*\.enabled", "false"),
        (r"commit\.template", ""),
        (r"interactive\.difffilter", "cat"),
        (r"(uploadpack|receive|uploadarchive)\..*(hook|command).*", ""),
        (r"sendemail\..*(cmd|server)", "false"),
        (r"instaweb\..*|web\.browser|help\.browser", "false"),
    )
)


def environment(path: str, home: str = "") -> dict[str, str]:
    """The variables of every run of git. `path`: where programs are looked for; `home`: empty: the runner's own."""
    made = {
        "PATH": path,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": _NOTHING,
        "GIT_CONFIG_SYSTEM": _NOTHING,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_PAGER": "cat",
        "PAGER": "cat",
        "GIT_EDITOR": ":",
        "GIT_SEQUENCE_EDITOR": ":",
        "GIT_SSH_COMMAND": _SSH,
        "GIT_MERGE_AUTOEDIT": "no",
        "GIT_ADVICE": "0",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
    }
    return {**made, "HOME": home} if home else made


class Entry(NamedTuple):
    """One setting of a configuration. Sections and last parts of keys are in lower case."""

    key: str
    value: str
    origin: str = ""
    """The file that it is in, absolute or from where git was started."""


def entries_of(listed: bytes) -> list[Entry]:
    """The output of `LISTING`, in its order; a key may come several times."""
    texts = [part.decode("utf-8", "surrogateescape") for part in listed.split(b"\0")]
    pairs = zip(texts[::2], texts[1::2], strict=False)
    split = ((origin.removeprefix("file:"), entry.partition("\n")) for origin, entry in pairs)
    return [Entry(key, value, origin) for origin, (key, _, value) in split]


def submodules_of(modules: str) -> list[str]:
    """Names of submodules in the text of a `.gitmodules`, however it spells them."""
    found = re.findall(
        r'^[ \t]*\[[ \t]*submodule[ \t]+"((?:[^"\\\n\0]|\\[^\0])*)"', modules, re.MULTILINE | re.IGNORECASE
    )
    return [re.sub(r"\\(.)", r"\1", name) for name in dict.fromkeys(found)]


def neutral(keys: Iterable[str]) -> dict[str, str]:
    """A value for each of these keys that could name a program or a file, with which it names none.

    Raises:
        PathRefused: there are too many.
    """
    found: dict[str, str] = {}
    size = 0
    for key in keys:
        section, dot, rest = key.partition(".")
        middle, _, last = rest.rpartition(".")
        plain = f"{section.lower()}.{middle}{'.' if middle else ''}{last.lower()}" if dot else key.lower()
        value = next((value for pattern, value in _NEUTRAL if pattern.fullmatch(plain)), None)
        if value is not None:
            found[key] = value
            size += len(key)
            if len(found) > MOST or size > _MOST_CHARACTERS:
                raise PathRefused(f"the repository's configuration names more than {MOST} programs")
    return found


def settings_for(configured: Mapping[str, str], *more: tuple[str, str]) -> dict[str, str]:
    """Variables that set `configured`, then what holds of every run, then `more`; the last one of a key wins."""
    pairs = [*configured.items(), *_FIXED.items(), *more]
    numbered = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for number, (key, value) in enumerate(pairs):
        numbered[f"GIT_CONFIG_KEY_{number}"] = key
        numbered[f"GIT_CONFIG_VALUE_{number}"] = value
    return numbered
