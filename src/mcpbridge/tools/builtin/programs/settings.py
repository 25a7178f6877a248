"""The `[builtin.git_cli]`, `[builtin.gh_cli]` and `[builtin.gws_cli]` tables: programs that a model may call."""

import os.path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mcpbridge.base.units import Bytes, Seconds

InSandbox = Literal["prefer", "require", "never"]


class CliSettings(BaseModel):
    """Settings that all these programs share."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    write: bool = True
    """Whether sub-commands that change something may be called; a person is asked about each such call. `false`: only
    sub-commands that read."""

    timeout: Seconds = Field(default=60, gt=0)
    """Seconds for a call. After that the program is killed, with all processes that it started."""

    max_output: Bytes = Field(default=32 << 10, ge=256)
    """Bytes of the output that the caller receives. The end of the result says how much was cut."""


class GitCliSettings(CliSettings):
    """The `[builtin.git_cli]` table."""

    repositories: tuple[str, ...] = ()
    """Directories below which repositories may be used; it may be the repository itself. A relative path starts at the
    directory of the configuration file. Empty: the tool refuses every call."""

    network: bool = True
    """Whether `fetch`, `pull`, `push`, `clone` and `ls-remote` may be called (over https and ssh, after a person
    agreed)."""

    sandbox: InSandbox = "prefer"
    """Where git runs. `prefer`: in the sandbox if one is ready, otherwise as a program of the user; the result then
    says that there was no sandbox. `require`: in the sandbox; without one the call is refused. `never`: as a program of
    the user. The table of allowed commands and the neutralised configuration apply in each case."""

    credential_helper: str = ""
    """The `credential.helper` for `https` remotes, such as `store` or `!gh auth git-credential`. A helper in the
    configuration of a repository is never run. Empty: none."""

    author: str = ""
    """`Name <mail>` for commits, if the configuration of the repository has none. Empty: from the user's own git
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
    """The `[builtin.gh_cli]` table. `gh` uses its own sign-in, or `GH_TOKEN` of the environment."""

    repository: str = Field(default="", pattern=r"^([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+)?$")
    """`OWNER/REPO` for calls without `--repo`. Empty: each call must name one."""

    sandbox: InSandbox = "never"
    """See `git_cli`. `gh` needs the network, its configuration and often the system's keyring, which a sandbox blocks:
    set `GH_TOKEN` if you use one."""


class GwsCliSettings(CliSettings):
    """The `[builtin.gws_cli]` table. `gws` uses its own sign-in."""

    sandbox: InSandbox = "never"
    """See `gh_cli`; in a sandbox, set `GOOGLE_WORKSPACE_CLI_TOKEN`."""
