"""The `builtin.code_execute` section of the configuration."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mcpbridge.base.units import Bytes
from mcpbridge.sandbox.settings import SandboxOverrides
from mcpbridge.tools.builtin.code.languages import Language


class CodeExecuteSettings(BaseModel):
    """The tool `code-execute`: which languages it runs, and how much code.

    The sandbox decides what programs may use and reach.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    languages: tuple[Language, ...] = Field(default=("python", "javascript"), min_length=1)
    """Languages that may be run, if their program is installed: `python`, `javascript` (Node.js), `shell` (`sh`)."""

    interpreters: dict[Language, str] = {}
    """The program of a language: a name or an absolute path, such as the Python of a virtual environment with packages
    for the programs. Default: that of the system."""

    max_input: Bytes = Field(default=8 * 1024**2, ge=1024)
    """Bytes of the code, its standard input and its files together."""

    sandbox: Literal["off"] | SandboxOverrides = SandboxOverrides.model_construct()
    """Differences from the section `sandbox`. `"off"`: programs run with all rights of this user."""

    @field_validator("interpreters")
    @classmethod
    def _are_programs(cls, value: dict[Language, str]) -> dict[Language, str]:
        for language, program in value.items():
            if not program or "\0" in program or ("/" in program and not program.startswith(("/", "~"))):
                raise ValueError(f"the program of `{language}` is a name, or a path from the root (found {program!r})")
        return value
