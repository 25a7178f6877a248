"""The `builtin.files` section: which files the tools `file-read`, `file-write`, `file-list` and `file-search` reach."""

from pathlib import PurePath
from typing import Self, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mcpbridge.base.units import Bytes, Seconds
from mcpbridge.sandbox.files.hard_links import HardLinks


class FilesSettings(BaseModel):
    """What is open to the file tools, and how much of it at a time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    roots: dict[str, str] = {}
    """Directories that the tools work in, with all that is beneath them: a list, or names with directories. `~` is the
    home directory, and a relative one starts where this file is. With several of them a path begins with the name of
    its root, which for a list is that of the directory. Left out: the tools are inactive."""

    max_read: Bytes = Field(default=256 * 1024, ge=1024)
    """Bytes of text that one answer shows of a file; the rest is asked for by line."""

    max_file: Bytes = Field(default=32 * 1024**2, ge=1024)
    """Bytes that are looked at of one file. Of a larger one only the beginning or end is read; it is not searched."""

    max_write: Bytes = Field(default=10 * 1024**2, ge=1)
    """Bytes of the largest file that is written, what is appended to included."""

    max_entries: int = Field(default=1000, ge=1, le=100_000)
    """Entries that one list may show, and matches that one search may."""

    timeout: Seconds = Field(default=15, gt=0)
    """Seconds after which a search or list ends with what it has found."""

    deny: list[str] = []
    """Globs of what does not exist for the tools. One without `/` is about any name on the way (`*.sqlite`, `private`),
    one with it about the path from the root (`data/**/raw`); case does not count."""

    protected: list[str] = []
    """Globs, as of `deny`, of what is read but never written. Always so are hooks and settings of repositories,
    editors, agents and shells (`.git`, `.mcp.json`, `.vscode`, `.claude`, `.github/workflows`, `.bashrc`, …)."""

    read_private: bool = False
    """Whether files are read that by their name hold secrets: `.env`, `.ssh`, `.aws`, `.netrc`, keys, …. They are never
    written."""

    hard_links: HardLinks = "auto"
    """Whether files with several names (hard links) are read, as one of the names may be outside of the root: `refuse`:
    never, `allow`: always, `auto`: where nobody beside the bridge's user and root may write, neither in the root nor in
    the file's directory. They are never written."""

    show_hidden: bool = True
    """Whether names that begin with a dot are listed and searched, unless the call says otherwise."""

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
