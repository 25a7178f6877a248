"""Where `${PROJECT_ROOT}` would let a project choose what runs: as the program, and within a script. Pure.

A client says which directory its project is, and whoever made that directory chose its name. As an argument it is data.
Within the text that a shell or an interpreter runs it is a part of the program; as the program itself, opening a
project would run what lies there.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import PureWindowsPath
from typing import cast

from msgspec import Struct

from mcpbridge.upstream.projects import ProjectText

__all__ = ["Misuse", "misuse"]

_RULES = {
    r"(ba|z|da|k|c|tc|fi|a)?sh": r"-[A-Za-z]*c|--command(=.*)?",
    r"python[0-9.]*|pypy[0-9.]*": r"-[A-Za-z]*c.*",
    r"node|nodejs|bun|tsx|ts-node": r"-[A-Za-z]*[ep]+|--(eval|print)(=.*)?",
    r"deno": r"eval",
    r"ruby|perl[0-9.]*|lua[0-9.]*|osascript|Rscript": r"-[A-Za-z0-9]*[eE].*",
    r"php[0-9.]*": r"-[rBRE].*",
    r"npx|npm|pnpm|yarn": r"-c|--call(=.*)?",
    r"pwsh|powershell": r"(?i:[-/](c|command|e|ec|enc|encodedcommand|cwa|commandwithargs))",
    r"cmd": r"(?i:/[A-Z]*[ckr].*)",
}
"""By the name of a program: the option before its script, or with it."""
_TO_THE_END = re.compile(r"pwsh|powershell|cmd")
"""Programs that take all that follows for the script."""


class Misuse(Struct, frozen=True):
    """One `${PROJECT_ROOT}` that must not stand where it does."""

    key: tuple[str, ...]
    what: str
    hint: str


def misuse(server: Mapping[str, object], texts: Sequence[ProjectText]) -> Misuse | None:
    """The first one of a server, if there is any. `texts`: all of it, with whole keys (`servers`, name, field, …)."""
    args = server.get("args")
    words = [str(word) for word in cast("list[object]", args)] if isinstance(args, list) else []
    at = {int(text.key[3]) + 1: text for text in texts if text.key[2] == "args" and len(text.key) == 4}
    for text in texts:
        if text.key[2] == "command":
            what = "${PROJECT_ROOT} in `command` runs whatever a project brings along, as soon as it is opened"
            hint = "Name a program that you installed; where it works is `cwd`, and its arguments may name the project."
            return Misuse(text.key, what, hint)
    for number in _scripts([str(server.get("command", "")), *words]):
        if (text := at.get(number)) is not None:
            what = "${PROJECT_ROOT} in a script: a directory's name would be run as a part of it"
            hint = 'Write env = { ROOT = "${PROJECT_ROOT}" } and "$ROOT" in the script, or use `cwd`.'
            return Misuse(text.key, what, hint)
    return None


def _scripts(words: Sequence[str]) -> set[int]:
    """Which of the words of a command line are run as text."""
    found = set[int]()
    for start, word in enumerate(words):
        name = re.sub(r"\.(exe|cmd|bat)$", "", PureWindowsPath(word).name, flags=re.IGNORECASE)
        option = next((rule for names, rule in _RULES.items() if re.fullmatch(names, name, re.IGNORECASE)), None)
        if option is not None:
            found |= _of_interpreter(words, start + 1, option, to_the_end=bool(_TO_THE_END.fullmatch(name.lower())))
    return found


def _of_interpreter(words: Sequence[str], start: int, option: str, *, to_the_end: bool) -> set[int]:
    found = set[int]()
    for number in range(start, len(words)):
        if not re.fullmatch(option, words[number], re.DOTALL):
            continue
        if to_the_end:
            return {*found, *range(number, len(words))}
        script = next((at for at in range(number + 1, len(words)) if words[at][:1] not in ("-", "+")), number)
        found |= {number, script}
    return found
