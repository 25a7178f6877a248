"""The `builtin.files` section: which files the tools `file-read`, `file-write`, `file-list` and `file-search` reach."""

from pathlib import PurePath
from typing import Self, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mcpbridge.base.units import Bytes, Seconds
from mcpbridge.sandbox.files.hard_links import HardLinks


class FilesSettings(BaseModel):
    """Which files the file tools may use, and how much at a time."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    roots: dict[str, str] = {}
    """Directories in which the tools work, with everything below them: a list, or a table of names and directories. `~`
    is the home directory; a relative path starts at the directory of the configuration file. With several roots a path
    begins with the name of its root; in a list that is the name of the directory. Default: none, and the tools are
    inactive."""

    max_read: Bytes = Field(default=256 * 1024, ge=1024)
    """Bytes of a file in one answer. The rest can be requested by line."""

    max_file: Bytes = Field(default=32 * 1024**2, ge=1024)
    """Bytes of the largest file that is read in full or searched. Of a larger one only the beginning or the end is
    read."""

    max_write: Bytes = Field(default=10 * 1024**2, ge=1)
    """Bytes of the largest file that may be written, including what was there before an append."""

    max_entries: int = Field(default=1000, ge=1, le=100_000)
    """The most entries of one list, and the most matches of one search."""

    timeout: Seconds = Field(default=15, gt=0)
    """Seconds after which a search or a list stops and returns what it has found."""

    deny: list[str] = []
    """Globs on files that do not exist for the tools. A glob without `/` matches any name on the path (`*.sqlite`,
    `private`), one with `/` matches the path from the root (`data/**/raw`). Case does not count."""

    protected: list[str] = []
    """Globs, as in `deny`, on files that may be read but never written. Always protected are hooks and settings of
    repositories, editors, agents and shells (`.git`, `.mcp.json`, `.vscode`, `.claude`, `.github/workflows`, `.bashrc`,
    …)."""

    read_private: bool = False
    """Whether files may be read whose name suggests secrets: `.env`, `.ssh`, `.aws`, `.netrc`, keys, …. They are never
    written."""

    hard_links: HardLinks = "auto"
    """Whether files with several names (hard links) may be read, since one of the names may be outside the root.
    `refuse`: never. `allow`: always. `auto`: where only the bridge's user and root may write to the root and to the
    directory of the file. Such files are never written."""

    show_hidden: bool = True
    """Whether files whose name begins with a dot are listed and searched, unless the call says otherwise."""

    @field_validator("roots", mode="before")
    @classmethod
    def _from_list(cls, value: object) -> object:
        """Take a list of directories: their names are those of the directories."""
        if isinstance(value, dict):
            return cast("object", value)
        if not isinstance(value, list):
            raise ValueError("expected a list of directories, or a table of names and directories")
        named: dict[str, object] = {}
        for path in cast("list[object]", value):
            if not isinstance(path, str):
                raise ValueError("expected directories as text")
            own = PurePath(path).name
            if not own.strip(" .~"):
                own = "home" if "~" in own else "root"
            name, number = own, 2
            while name in named:
                name, number = f"{own}-{number}", number + 1
            named[name] = path
        return named

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, path in self.roots.items():
            if not name.strip(" .~") or "/" in name or "\\" in name or not name.isprintable():
                raise ValueError(f"roots: {name[:60]!r} cannot be the name of a root: paths begin with it")
            if not path.strip():
                raise ValueError(f"roots.{name[:60]}: expected a directory")
        _check_globs("deny", self.deny)
        _check_globs("protected", self.protected)
        return self


def _check_globs(key: str, patterns: list[str]) -> None:
    if not patterns:
        return
    from mcpbridge.sandbox.files.rules import Globs, WrongGlob

    for pattern in patterns:
        try:
            if not Globs([pattern], folds=True):
                raise WrongGlob("it stands for nothing")
        except WrongGlob as error:
            raise ValueError(f"{key}: {pattern[:60]!r}: {error}") from None
