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
    """A program that is run for each call, without a shell and in the sandbox."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: list[_Text | list[_Text]] = Field(min_length=1)
    """The program and its words. `{name}` in a word is the place of an argument, `{name?}` of one that may be left out,
    with its word; words that go together stand in a list of their own: `["--max", "{max?}"]`. A list as an argument
    repeats its word. Nothing is split, and no shell reads it."""

    options: list[str] = []
    """Arguments that may begin with a dash where the program would read an option. All others are refused then, unless
    the word `--` stands before them."""

    stdin: _Text | None = None
    """What the program reads on its standard input, with places as in `command`. Left out: nothing."""

    env: dict[Annotated[str, Field(pattern=r"^[^=\x00]+$")], _Text] = {}
    """Environment variables of the program, over PATH, HOME, LANG and TMPDIR."""

    cwd: _Text | None = Field(default=None, min_length=1)
    """The directory that it works in, which it may read; to change files there, `sandbox.allow_fs.read_write` has to
    name it. Left out: an empty one that is removed afterwards. Relative: from the directory of the configuration."""

    output: Literal["text", "json", "lines"] = "text"
    """What its standard output is: text, one JSON value, or a list of lines."""

    output_cap: Bytes = Field(default=32 * 1024, ge=1024)
    """Bytes of output that are shown of `text` and `lines`; how much was cut is said."""

    exit_codes: list[Annotated[int, Field(ge=0, le=255)]] = [0]
    """Exit codes that are no failure (`grep` ends with 1 when it finds nothing)."""

    timeout: Seconds | None = Field(default=None, gt=0)
    """Seconds until it is stopped, with all that it started. Left out: `sandbox.timeout`."""

    sandbox: Literal["off"] | SandboxOverrides = SandboxOverrides()
    """What differs from the section `sandbox` for this program; `"off"`: it runs with all rights of this user."""

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
            from mcpbridge.tools.command.arguments import Shape

            Shape(self.output_schema)  # raises what is wrong with it
        if self.input_schema is not None:
            known = _names_of(self.input_schema)
            for name in placeholders(*words_of(self.command), self.stdin or ""):
                if known is not None and name not in known:
                    raise ValueError(f"`{{{name}}}` stands in the command, but `input_schema` has no such property")
        return self


def _names_of(schema: dict[str, Any]) -> set[str] | None:
    """The properties that a schema lists; None where it lists them in another way than by `properties`."""
    properties = schema.get("properties")
    return set(cast("dict[str, Any]", properties)) if isinstance(properties, dict) else None
