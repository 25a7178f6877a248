"""The settings of a command as a tool: `[tools.lint] command = ["ruff", "check", "{path}"]`."""

import json
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mcpbridge.base.units import Bytes, Seconds
from mcpbridge.sandbox.settings import SandboxOverrides
from mcpbridge.tools.command.arguments import mistakes, placeholders, words_of
from mcpbridge.tools.settings import BackendSettings

_Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class CommandSettings(BackendSettings, BaseModel):
    """A program that runs for each call, without a shell and in the sandbox."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    command: list[_Text | list[_Text]] = Field(min_length=1)
    """The program and its words. `{name}` in a word is replaced by an argument; `{name?}` by an optional one, and
    without it the whole word is left out. Words that belong together form a list of their own: `["--max", "{max?}"]`.
    An argument that is a list repeats its word. Words are never split, and no shell reads them."""

    options: list[str] = []
    """Arguments that may begin with a dash in a place where the program would read an option. Other arguments with a
    dash are refused there, unless the word `--` comes before them."""

    stdin: _Text | None = None
    """The standard input of the program, with `{name}` as in `command`. Default: empty."""

    env: dict[Annotated[str, Field(pattern=r"^[^=\x00]+$")], _Text] = {}
    """Environment variables of the program, in addition to PATH, HOME, LANG and TMPDIR."""

    cwd: _Text | None = Field(default=None, min_length=1)
    """The working directory of the program. It may read this directory; to change files there, name it in
    `sandbox.allow_fs.read_write`. A relative path starts at the directory of the configuration file. Default: an empty
    directory that is removed afterwards."""

    output: Literal["text", "json", "lines"] = "text"
    """How its standard output is read: as text, as one JSON value, or as a list of lines."""

    output_cap: Bytes = Field(default=32 * 1024, ge=1024)
    """Bytes of output that are shown with `text` and `lines`. The result says how much was cut."""

    exit_codes: list[Annotated[int, Field(ge=0, le=255)]] = [0]
    """Exit codes that do not mean failure (`grep` ends with 1 when it finds nothing)."""

    timeout: Seconds | None = Field(default=None, gt=0)
    """Seconds after which the program is stopped, with all processes that it started. Default: `sandbox.timeout`."""

    sandbox: Literal["off"] | SandboxOverrides = SandboxOverrides.model_construct()
    """Differences from the section `sandbox` for this program. `"off"`: it runs with all rights of this user."""

    @field_validator("sandbox", mode="before")
    @classmethod
    def _from_boolean(cls, value: object) -> object:
        """Take `sandbox = true` for the section `sandbox` as it is."""
        if value is False:
            raise ValueError('to run it outside of the sandbox, write sandbox = "off"')
        return {} if value is True else value

    @field_validator("env", mode="before")
    @classmethod
    def _numbers_are_text(cls, value: object) -> object:
        """Take `PORT = 3000` and `DEBUG = true` as the text they become anyway."""
        if not isinstance(value, dict):
            return value
        given = cast("dict[object, object]", value)
        return {key: json.dumps(item) if isinstance(item, bool | int | float) else item for key, item in given.items()}

    @field_validator("options")
    @classmethod
    def _are_names(cls, value: list[str]) -> list[str]:
        if any(not name for name in value):
            raise ValueError("`options` are names of arguments")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for mistake in mistakes(self.command, self.options):
            raise ValueError(mistake)
        if self.output_schema is not None:
            if self.output == "text":
                raise ValueError('`output_schema` goes with output = "json" or "lines"')
            from mcpbridge.tools.command.result import OutputShape

            OutputShape(self.output_schema)  # raises what is wrong with it
        if self.input_schema is not None:
            known = _names_of(self.input_schema)
            for name in placeholders(*words_of(self.command), self.stdin or ""):
                if known is not None and name not in known:
                    raise ValueError(f"`{{{name}}}` is in the command, but `input_schema` has no such property")
        return self


def _names_of(schema: dict[str, Any]) -> set[str] | None:
    """The properties that a schema lists; None where it lists them in another way than by `properties`."""
    properties = schema.get("properties")
    return set(cast("dict[str, Any]", properties)) if isinstance(properties, dict) else None
