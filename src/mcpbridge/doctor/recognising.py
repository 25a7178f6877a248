"""Which of the known breakages a server has met. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from mcpbridge.doctor.finding import Edit
from mcpbridge.doctor.known import KNOWN
from mcpbridge.doctor.launchers import launcher_of
from mcpbridge.upstream.settings import ServerSettings

__all__ = ["Diagnosis", "recognise"]

_LOOKED_AT = 64_000
"""Characters of what a server said, its last."""
_LONGEST = 200
"""Characters that are repeated of what a pattern has found."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A breakage that was recognised."""

    code: str
    what: str
    why: str
    fix: str
    edit: Edit | None = None


def recognise(server: str, settings: ServerSettings, words: str, environ: Mapping[str, str]) -> Diagnosis | None:
    """What is wrong, going by what the server said before it failed; None: nothing that is known. Never raises.

    `environ`: the variables that the bridge has, and could hand over.
    """
    launcher, words = launcher_of(settings), words[-_LOOKED_AT:]
    for known in KNOWN:
        if known.by and launcher not in known.by:
            continue
        if (found := known.said.search(words)) is None:
            continue
        it = next((group.strip()[:_LONGEST] for group in found.groups() if group), "")
        if known.code == "variable-missing":
            fix, edit = _variable(server, settings, it, environ)
        else:
            fix, edit = known.fix, known.edit(server, settings, it) if known.edit is not None else None
        return Diagnosis(known.code, _filled(known.what, it), known.why, fix, edit)
    return None


def _filled(text: str, it: str) -> str:
    return text.replace("{it}", it).removesuffix(": ")


def _variable(server: str, settings: ServerSettings, name: str, environ: Mapping[str, str]) -> tuple[str, Edit | None]:
    """A variable that a program wants: it is handed over if the bridge has it."""
    if name in settings.env:
        fix = f"`env.{name}` of the server is set, so perhaps it is empty, or the program wants another one too."
        return fix, None
    line = f'env = {{ {name} = "${{{name}}}" }}'
    if environ.get(name):
        return f"The bridge has it, but hands over only what it is told to: {line}", Edit(
            server, key=("env", name), value=f"${{{name}}}"
        )
    return f"Set it where the bridge starts, and hand it over: {line}", None
