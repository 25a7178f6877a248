"""The `builtin.code_execute` section of the configuration."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mcpbridge.base.units import Bytes
from mcpbridge.sandbox.settings import SandboxOverrides
from mcpbridge.tools.builtin.code.languages import Language


class CodeExecuteSettings(BaseModel):
    """The tool `code-execute`: what it runs, and how much. What programs may use and reach is the sandbox's matter."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    languages: tuple[Language, ...] = Field(default=("python", "javascript"), min_length=1)
    """What may be run, of that for which there is a program: `python`, `javascript` (Node.js), `shell` (`sh`)."""

    interpreters: dict[Language, str] = {}
    """The program of a language, a name or an absolute path, such as the Python of a virtual environment with packages
    for programs to use. Left out: the system's."""

    max_input: Bytes = Field(default=8 * 1024**2, ge=1024)
    """Bytes of the code, its standard input and its files together."""

    sandbox: Literal["off"] | SandboxOverrides = SandboxOverrides()
    """What differs from the section `sandbox` here; `"off"`: programs run with all rights of this user."""

    @field_validator("interpreters")
    @classmethod
    def _are_programs(cls, value: dict[Language, str]) -> dict[Language, str]:
        for language, program in value.items():
            if not program or "\0" in program or ("/" in program and not program.startswith(("/", "~"))):
                raise ValueError(f"the program of `{language}` is a name, or a path from the root (found {program!r})")
        return value
