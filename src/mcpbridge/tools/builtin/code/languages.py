"""The languages of `code-execute`: which program runs each, and how.

A program comes from the system where there is one, since the sandbox shows that anyway, else from wherever the bridge
has it, whose directories are then shown too. Its packages are whatever is installed with it: none is promised, and
those of the bridge are not among them.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from msgspec import Struct

from mcpbridge.sandbox.isolation.readable_files import brought_along

Language = Literal["python", "javascript", "shell"]

LANGUAGES: tuple[Language, ...] = get_args(Language)

_SYSTEM = os.pathsep.join(("/usr/local/bin", "/usr/bin", "/bin"))
_MODULE = re.compile(
    r"^[ \t]*(?:import\b(?!\s*\()|export\b|await\b|(?:const|let|var)\b[^\n;=]*=\s*await\b)", re.MULTILINE
)
_REQUIRES = re.compile(r"\brequire\s*\(|\bmodule\.exports\b")
_MEGABYTE = 1 << 20
_HEAP = 3, 4
"""The part of the memory that JavaScript may fill with values; the rest is the engine's own."""


class Interpreter(Struct, frozen=True):
    """What runs a language."""

    language: Language
    program: str
    """Absolute."""
    read_only: tuple[str, ...] = ()
    """What it needs besides the system."""

    def file_for(self, code: str) -> str:
        """The name of the file that the code is in."""
        if self.language == "javascript":
            is_module = bool(_MODULE.search(code)) and not _REQUIRES.search(code)
            return "main.mjs" if is_module else "main.cjs"
        return "main.py" if self.language == "python" else "main.sh"

    def argv(self, file: str, *, memory: int) -> tuple[str, ...]:
        """What to run. `memory`: bytes that there are."""
        flags: Sequence[str] = ()
        if self.language == "python":
            # Nothing is written beside the code, and what was printed is out when the time is.
            flags = ("-B", "-u", "-X", "utf8")
        elif self.language == "javascript":
            flags = (f"--max-old-space-size={memory * _HEAP[0] // _HEAP[1] // _MEGABYTE}",)
        return (self.program, *flags, file)


def find_interpreters(
    languages: Sequence[Language], configured: Mapping[Language, str], path: str
) -> dict[Language, Interpreter]:
    """What runs these languages, of those for which there is a program. `path`: a PATH to look in last."""
    there: dict[Language, Interpreter] = {}
    for language in languages:
        if program := _program(language, configured.get(language, ""), path):
            there[language] = Interpreter(language, program, brought_along(program, path))
    return there


def _program(language: Language, configured: str, path: str) -> str:
    if configured:
        return shutil.which(os.path.expanduser(configured), path=path) or ""  # noqa: PTH111 - a name, or a path
    name = {"python": "python3", "javascript": "node", "shell": "sh"}[language]
    in_system = shutil.which(name, path=_SYSTEM)
    if in_system:
        return in_system
    if language == "python":
        return str(getattr(sys, "_base_executable", "") or sys.executable)
    return shutil.which(name, path=path) or ""
