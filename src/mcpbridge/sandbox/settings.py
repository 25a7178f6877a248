"""The `[sandbox]` table: limits of every job that runs in a sandbox, and what one tool may set otherwise."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mcpbridge.base.units import Bytes, Seconds
from mcpbridge.sandbox.job import DEFAULT_LIMITS, Access, Limits

Property = Literal["net", "fs", "env", "proc", "tree", "memory", "pids"]
"""What a sandbox must keep a job from: the network and sockets, files outside, the bridge's environment, other
processes, processes that outlive it, and more memory or processes than it may have."""

PROPERTIES: tuple[Property, ...] = ("net", "fs", "env", "proc", "tree", "memory", "pids")

Mode = Literal["auto", "bubblewrap", "launcher", "off"]

LEAST_MEMORY = 16 << 20
"""Bytes; no interpreter starts with less."""


class FileAccess(BaseModel):
    """Files and directories that a job may use besides the programs of the system, as absolute paths."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    read_only: tuple[str, ...] = ()
    """Paths that may be read."""

    read_write: tuple[str, ...] = ()
    """Paths that may be read and changed."""

    @field_validator("read_only", "read_write")
    @classmethod
    def _are_absolute(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_absolute(path) for path in paths)


class SandboxOverrides(BaseModel):
    """Sandbox settings of one tool. A key that is left out takes its value from `[sandbox]`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    timeout: Seconds | None = Field(default=None, gt=0)
    """Seconds for a job. After that all its processes are killed."""

    memory: Bytes | None = Field(default=None, ge=LEAST_MEMORY)
    """Bytes of memory for all processes of a job together."""

    allow_network: bool | None = None
    """Whether a job can reach the network, including services on this machine."""

    allow_fs: FileAccess | None = None
    """Files that a job may use besides its own work folder. Replaces `allow_fs` of `[sandbox]`."""

    env: Mapping[str, str] = Field(default_factory=dict[str, str])
    """Environment variables of a job, in addition to those of `[sandbox]`. It gets none of the bridge's own."""

    pids: int | None = Field(default=None, ge=1, le=32768)
    """Processes and threads at a time. 1: a job cannot start a process."""

    file_size: Bytes | None = Field(default=None, ge=0)
    """Bytes of the largest file that a job may write."""

    disk: Bytes | None = Field(default=None, ge=0)
    """Bytes of all files in the work folder of a job together. Does not apply to servers."""

    output: Bytes | None = Field(default=None, ge=0)
    """Bytes that are kept of standard output, and of standard error."""


class SandboxSettings(BaseModel):
    """The `[sandbox]` table. `sandbox = "off"` is short for `mode = "off"`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    enabled: bool = True
    """Whether tools that need a sandbox exist. `false`: they are not listed and refuse calls."""

    mode: Mode = "auto"
    """Which sandbox is used. `auto`: the first one that passes all checks of `require`. `bubblewrap`, or `launcher`
    (Landlock and seccomp): only that one. `off`: none; jobs have all rights of your user, and `status` and every result
    say so."""

    require: tuple[Property, ...] = PROPERTIES
    """What a sandbox must be proven to prevent before it is used. Removing an entry is at your own risk."""

    timeout: Seconds = Field(default=DEFAULT_LIMITS.timeout, gt=0)
    """Seconds for a job. After that all its processes are killed."""

    memory: Bytes = Field(default=DEFAULT_LIMITS.memory, ge=LEAST_MEMORY)
    """Bytes of memory for all processes of a job together."""

    allow_network: bool = False
    """Whether jobs can reach the network, including services on this machine."""

    allow_fs: FileAccess = FileAccess.model_construct()
    """Files that jobs may use besides their own work folder."""

    env: Mapping[str, str] = Field(default_factory=dict[str, str])
    """Environment variables of jobs. They get none of the bridge's own."""

    pids: int = Field(default=DEFAULT_LIMITS.pids, ge=1, le=32768)
    """Processes and threads of a job at a time. 1: a job cannot start a process."""

    file_size: Bytes = Field(default=DEFAULT_LIMITS.file_size, ge=0)
    """Bytes of the largest file that a job may write."""

    disk: Bytes = Field(default=DEFAULT_LIMITS.disk, ge=0)
    """Bytes of all files in the work folder of a job together; at most 50,000 files. This is checked several times a
    second, and a job that has written more is stopped."""

    output: Bytes = Field(default=DEFAULT_LIMITS.output, ge=0)
    """Bytes that are kept of standard output, and of standard error."""

    @model_validator(mode="before")
    @classmethod
    def _from_mode(cls, value: object) -> object:
        """Take `sandbox = "off"` for the mode alone."""
        return {"mode": value} if isinstance(value, str) else value


def limits_of(settings: SandboxSettings, own: SandboxOverrides | None = None) -> tuple[Limits, Access, dict[str, str]]:
    """What a tool's jobs may use and reach, and their variables: its own settings before those of `[sandbox]`."""
    own = own or SandboxOverrides()
    files = settings.allow_fs if own.allow_fs is None else own.allow_fs
    limits = Limits(
        timeout=settings.timeout if own.timeout is None else own.timeout,
        memory=settings.memory if own.memory is None else own.memory,
        pids=settings.pids if own.pids is None else own.pids,
        file_size=settings.file_size if own.file_size is None else own.file_size,
        disk=settings.disk if own.disk is None else own.disk,
        output=settings.output if own.output is None else own.output,
    )
    network = settings.allow_network if own.allow_network is None else own.allow_network
    access = Access(network=network, read_only=files.read_only, read_write=files.read_write)
    return limits, access, {**settings.env, **own.env}


def _absolute(path: str) -> str:
    import os.path

    whole = os.path.expanduser(path)  # noqa: PTH111 - text in, text out
    if not os.path.isabs(whole):  # noqa: PTH117 - text in, text out
        raise ValueError(f"'{path}' is not an absolute path: write it from the root, or from ~")
    if "\0" in whole:
        raise ValueError("a path has no zero bytes")
    whole = os.path.normpath(whole)
    if whole == "/":
        raise ValueError("'/' would open everything: name the directories that are needed")
    return whole
