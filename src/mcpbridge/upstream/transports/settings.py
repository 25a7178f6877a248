"""The `container` table of a server with an `image`: which engine runs it, and what it may reach and use."""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mcpbridge.base.units import Bytes

_Word = Annotated[str, Field(pattern=r"^[^\x00]+$")]
_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MODES = frozenset({"ro", "rw", "z", "Z"})


def parts_of_mount(mount: str) -> tuple[str, str, str]:
    """What is mounted, where in the container, and how (`ro,z`; empty: to be written).

    Raises:
        ValueError: it is no mount; says why.
    """
    source, colon, rest = mount.partition(":")
    target, _, mode = rest.partition(":")
    if not source or not colon or not target.startswith("/"):
        raise ValueError("write it as SOURCE:/PATH/IN/THE/CONTAINER, with `:ro` behind it if it may only be read")
    if unknown := {word for word in mode.split(",") if word} - _MODES:
        raise ValueError(f"`{min(unknown)}` is no way to mount: there are {', '.join(sorted(_MODES))}")
    return source, target, mode


def is_volume(source: str) -> bool:
    """It names a volume of the engine, not a file or directory."""
    return _VOLUME.fullmatch(source) is not None


class ContainerSettings(BaseModel):
    """The `container` table of a server with an `image`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    engine: Literal["auto", "docker", "podman"] = "auto"
    """What runs the container. `auto`: Docker if it is installed and answers, otherwise Podman."""

    mounts: list[_Word] = []
    """Files and directories of this machine in the container: `SOURCE:/PATH` or `SOURCE:/PATH:ro`. The source is a file
    or directory that exists (`~` is the home directory, `./` the directory of the configuration file), or the name of a
    volume."""

    network: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]*$")] | None = None
    """`none`, `host`, or the name of a network. Default: that of the engine, which reaches the internet."""

    memory: Bytes | None = Field(default=None, ge=6 * 1024**2)
    """Bytes of memory. The kernel ends a container that needs more. Default: no limit."""

    cpus: float | None = Field(default=None, gt=0)
    """Processors; 0.5 is half the time of one. Default: no limit."""

    pids: int | None = Field(default=None, ge=1)
    """Processes and threads at a time. Default: that of the engine."""

    user: _Word | None = None
    """The user in the container, `NAME` or `UID:GID`. Default: that of the image."""

    workdir: Annotated[str, Field(pattern=r"^/[^\x00]*$")] | None = None
    """The working directory in the container. Default: that of the image."""

    entrypoint: _Word | None = None
    """The program in the container, which gets `args`. Default: that of the image."""

    pull: Literal["missing", "always", "never"] = "missing"
    """Whether the image is fetched before a start. The time for it counts towards `init_timeout`."""

    options: list[_Word] = []
    """Further options of `docker run` or `podman run`, such as `--read-only` or `--cap-drop=ALL`."""

    @field_validator("mounts")
    @classmethod
    def _are_mounts(cls, value: list[str]) -> list[str]:
        for mount in value:
            try:
                parts_of_mount(mount)
            except ValueError as error:
                raise ValueError(f"'{mount[:200]}': {error}") from None
        return value

    @field_validator("options")
    @classmethod
    def _leave_the_rest(cls, value: list[str]) -> list[str]:
        """Refuse those by which the bridge would lose sight of the container or of what it says."""
        for option in value:
            name = option.partition("=")[0]
            if name in _OURS:
                raise ValueError(f"`{name}` is an option that the bridge sets itself")
            if not name.startswith("-"):
                raise ValueError(f"'{option[:100]}' is no option: write an option and its value as one text, with `=`")
        return value


_OURS = frozenset(
    {
        "-d",
        "--detach",
        "-t",
        "--tty",
        "-i",
        "--interactive",
        "-it",
        "-ti",
        "--name",
        "--rm",
        "-a",
        "--attach",
        "--restart",
    }
    | {"--cidfile", "--sig-proxy", "--replace"}
)
