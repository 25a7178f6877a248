"""The `[builtin.git_cli]`, `[builtin.gh_cli]` and `[builtin.gws_cli]` tables: programs that a model may call."""

import os.path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mcpbridge.base.units import Bytes, Seconds

InSandbox = Literal["prefer", "require", "never"]


class CliSettings(BaseModel):
    """What can be set of each of these programs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    write: bool = True
    """Whether sub-commands that change something may be called at all; a person is asked about each such call. False:
    only what reads."""

    timeout: Seconds = Field(default=60, gt=0)
    """Seconds that a call may take; then the program and all that it started are killed."""

    max_output: Bytes = Field(default=32 << 10, ge=256)
    """Bytes of the output that the caller gets; the end of the result says how much was cut."""


class GitCliSettings(CliSettings):
    """The `[builtin.git_cli]` table."""

    repositories: tuple[str, ...] = ()
    """Directories under which repositories may be used; a repository itself is such a directory too. A relative one is
    meant from the configuration file. None: the tool refuses every call."""

    network: bool = True
    """Whether `fetch`, `pull`, `push`, `clone` and `ls-remote` may be called at all (over https and ssh, after a person
    agreed)."""

    sandbox: InSandbox = "prefer"
    """`prefer`: in the sandbox where one is ready, else as a program of the user (the table of commands and the
    neutralised configuration hold either way, and the result says that there was none); `require`: refuse where no
    sandbox is ready; `never`: as a program of the user."""

    credential_helper: str = ""
    """The `credential.helper` for `https` remotes, such as `store` or `!gh auth git-credential`. What the configuration
    of a repository names is never run. Empty: none."""

    author: str = ""
    """`Name <mail>` of commits where the repository's own configuration has none. Empty: from the user's own git
    configuration."""

    @field_validator("repositories")
    @classmethod
    def _are_directories(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for path in value:
            if not path or "\0" in path:
                raise ValueError("an empty path: name directories, such as '~/src'")
        return tuple(os.path.expanduser(path) for path in value)  # noqa: PTH111 - text in, text out

    @field_validator("author")
    @classmethod
    def _is_name_and_mail(cls, value: str) -> str:
        name, bracket, mail = value.partition(" <")
        if value and not (name.strip() and bracket and mail.endswith(">") and value.isprintable()):
            raise ValueError("write it as 'Name <mail@example.org>'")
        return value


class GhCliSettings(CliSettings):
    """The `[builtin.gh_cli]` table. Who is signed in is what `gh` itself knows, or `GH_TOKEN` of the environment."""

    repository: str = Field(default="", pattern=r"^([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+)?$")
    """`OWNER/REPO` of calls that name none with `--repo`. Empty: they have to name one."""

    sandbox: InSandbox = "never"
    """See `git_cli`. `gh` needs the network, its configuration and often the system's keyring, which a sandbox keeps it
    from: in one, set `GH_TOKEN`."""


class GwsCliSettings(CliSettings):
    """The `[builtin.gws_cli]` table. Who is signed in is what `gws` itself knows."""

    sandbox: InSandbox = "never"
    """See `gh_cli`; in a sandbox, set `GOOGLE_WORKSPACE_CLI_TOKEN`."""
