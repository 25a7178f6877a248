"""Which repository a call means, whether it lies where repositories may be used, and whether git may enter it.

- git would search for itself, follow `.git` files anywhere, and take a configured `core.worktree`. So the repository,
  its common part and its working tree are found beforehand, must all lie under the configured directories, and are
  passed by variables, which come before everything that a repository says of itself.
- Files are read without waiting: a sparse file of many gigabytes costs nothing to make, and a pipe never ends.
- Repositories within the working tree: `git add`, `stash` and others ask each submodule whether it changed, in a
  process that forgets what was neutralised. A working tree with such a submodule is refused.
- Files that a repository's configuration makes git read would be shown line by line in complaints. Most such settings
  are neutralised. An include and `blame.ignoreRevsFile` cannot be, so their files must lie where repositories may be.
"""

import asyncio
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from mcpbridge.base.errors import ArgumentsRefused, PathRefused, ToolInactive
from mcpbridge.tools.builtin.programs.git.hardening import LISTING, Entry, entries_of

_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_BINARY"))
_MOST_ENTRIES = 10_000


class Entries:
    """Entries of the directories of one repository; together there are no more than an honest one has."""

    def __init__(self) -> None:
        self._left = _MOST_ENTRIES

    def of(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        """Those of a directory; none where it is not there, or none.

        Raises:
            PathRefused: all of them together are too many.
            OSError: it could not be read.
        """
        try:
            found = os.scandir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        with found:
            for entry in found:
                self._left -= 1
                if self._left < 0:
                    raise PathRefused(f"{folder}: there are more than {_MOST_ENTRIES:,} entries up to here")
                yield entry


def whole(file: Path, most: int) -> bytes:
    """What is in a file of at most `most` bytes.

    Raises:
        PathRefused: it is larger, or no file.
        OSError: it cannot be read, or is a link.
    """
    descriptor = os.open(file, _FLAGS)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PathRefused(f"{file} is no plain file")
        data = opened.read(most + 1)
    if len(data) > most:
        raise PathRefused(f"{file} is larger than {most:,} bytes")
    return data


_LONGEST_POINTER, _LARGEST_ALTERNATES = 4096, 64 << 10
"""Bytes of a `.git` file, and of a list of repositories that objects are borrowed from."""
_MOST_BORROWED, _DEEPEST_BORROWED = 100, 5
"""Repositories, and how many steps the last one is away."""
_WITHIN = ("", "info", "objects", "objects/info", "rebase-merge", "rebase-apply", "sequencer", "logs")
"""Directories of a repository whose files git reads, and in part shows: the steps of a rebase in `status`, bad lines of
others in complaints."""


class Place(Struct, frozen=True):
    """A repository. Absolute real paths."""

    directory: str
    """Where git works: the directory of the call."""
    git_dir: str
    common: str
    """Where objects, refs and the configuration are: `git_dir`, unless it is a linked working tree."""
    tree: str
    """The top of the working tree; empty: a bare repository."""
    others: tuple[str, ...] = ()
    """Object directories of other repositories that it borrows from."""

    @property
    def variables(self) -> dict[str, str]:
        """The options that name it to git."""
        found = {"GIT_DIR": self.git_dir}
        if self.tree:
            found["GIT_WORK_TREE"] = self.tree
        return found

    @property
    def paths(self) -> tuple[str, ...]:
        """All directories that git needs."""
        return tuple(dict.fromkeys(one for one in (self.tree, self.git_dir, self.common, *self.others) if one))


def folder_of(given: str, roots: Sequence[str]) -> tuple[Path, Path]:
    """The directory that a call names, and the configured one that it lies under; both as real paths.

    Raises:
        ToolInactive: no directories are configured, or none of them is there.
        ArgumentsRefused: several are, and the call names none.
        PathRefused: it is elsewhere, or there is no such directory.
    """
    known = [Path(os.path.realpath(root)) for root in roots]
    present = [root for root in known if root.is_dir()]
    if not present:
        why = "none of its directories exists" if known else "it has no directories in which repositories may be"
        raise ToolInactive("git-cli", why, "Whoever runs the bridge sets `repositories` in `[builtin.git_cli]`.")
    if not given:
        if len(present) > 1:
            raise ArgumentsRefused(f"`directory` is missing: one of {', '.join(map(str, present))}, or one below")
        return present[0], present[0]
    candidates = [Path(given)] if Path(given).is_absolute() else [root / given for root in present]
    for candidate in candidates:
        try:
            real = Path(os.path.realpath(candidate))
            found = next((root for root in present if real.is_relative_to(root) and real.is_dir()), None)
        except (OSError, ValueError):  # too long, a zero byte, half of a surrogate pair
            continue
        if found is not None:
            return real, found
    there = ", ".join(map(str, present))
    raise PathRefused(f"{given[:200]}: no directory below {there}")


def place_of(given: str, roots: Sequence[str]) -> Place:
    """The repository that the directory of a call lies in.

    Raises:
        BridgeError: as `folder_of`, or it lies in none that may be used.
    """
    directory, root = folder_of(given, roots)
    try:
        place = _place(directory, root, roots)
    except (OSError, ValueError) as error:
        raise PathRefused(f"{directory}: its `.git` file makes no sense") from error
    if place is None:
        raise PathRefused(f"{directory} is in no git repository")
    return place


def _place(directory: Path, root: Path, roots: Sequence[str]) -> Place | None:
    """The repository around a directory, no higher than `root`."""
    allowed = [Path(os.path.realpath(one)) for one in roots]
    for top in (directory, *directory.parents):
        if not top.is_relative_to(root):
            break
        if (top / ".git").exists() or (top / ".git").is_symlink():
            return _of_tree(directory, top, allowed)
        if _is_bare(top):
            return _checked(Place(str(directory), str(top), str(top), ""), allowed)
    return None


def _of_tree(directory: Path, top: Path, allowed: Sequence[Path]) -> Place:
    dot = top / ".git"
    git_dir = Path(os.path.realpath(dot))
    if git_dir.is_file():
        git_dir = _pointed_to(git_dir, "gitdir: ", top)
    _inside(git_dir, allowed, "its `.git`")
    common = git_dir
    if (git_dir / "commondir").is_file():
        common = _pointed_to(git_dir / "commondir", "", git_dir)
        _inside(common, allowed, "its common directory")
    if not _is_bare(common) and not (common / "HEAD").exists():
        raise PathRefused(f"{top} is no git repository: its `.git` is incomplete")
    if Path(directory).is_relative_to(git_dir):
        raise PathRefused(f"{directory} is inside of a `.git`: name the working tree")
    return _checked(Place(str(directory), str(git_dir), str(common), str(top)), allowed)


def _is_bare(top: Path) -> bool:
    return (top / "HEAD").is_file() and (top / "objects").is_dir() and (top / "refs").is_dir()


def _pointed_to(file: Path, prefix: str, base: Path) -> Path:
    try:
        text = whole(file, _LONGEST_POINTER).decode("utf-8", "surrogateescape").strip("\r\n")
    except OSError as error:
        raise PathRefused(f"{file}: {error.strerror}") from None
    if not text.startswith(prefix) or "\0" in text:
        raise PathRefused(f"{file} does not point to a repository")
    return Path(os.path.realpath(base / text.removeprefix(prefix)))


def _checked(place: Place, allowed: Sequence[Path]) -> Place:
    """The place, if nothing in it leads elsewhere.

    Raises:
        PathRefused: something does.
    """
    entries = Entries()
    for base in dict.fromkeys((place.git_dir, place.common)):
        for inner in _WITHIN:
            _check_folder(Path(base, inner), entries, allowed)
        # What `worktree list` shows of others: it reads their pointers, whatever these are.
        worktrees = Path(base, "worktrees")
        for other in (worktrees, *(Path(entry.path) for entry in entries.of(worktrees))):
            _check_folder(other, entries, allowed)
    others = _borrowed(Path(place.common, "objects"), entries, allowed)
    return Place(place.directory, place.git_dir, place.common, place.tree, others)


def _check_folder(folder: Path, entries: Entries, allowed: Sequence[Path]) -> None:
    """Whether the entries of a directory of a repository, if it is there, are files and directories inside.

    Raises:
        PathRefused: one leads elsewhere, or could not be read to its end.
    """
    for entry in entries.of(folder):
        if entry.is_symlink():
            _inside(Path(os.path.realpath(entry.path)), allowed, f"{entry.name[:60]} in its `.git`")
        if not (entry.is_file() or entry.is_dir() or entry.name.endswith(".ipc") or entry.is_symlink()):
            raise PathRefused(f"{entry.path} is neither a file nor a directory")


def _borrowed(objects: Path, entries: Entries, allowed: Sequence[Path]) -> tuple[str, ...]:
    """Object directories that this one borrows from, and those in turn.

    Raises:
        PathRefused: one lies outside, there are too many, or it cannot be said which they are.
    """
    found: dict[Path, None] = {}
    level = [objects]
    for _ in range(_DEEPEST_BORROWED + 1):
        level = list(dict.fromkeys(other for one in level for other in _alternates(one) if other not in found))
        if not level:
            return tuple(map(str, found))
        _check_number(len(found) + len(level))
        for other in level:
            _inside(other, allowed, "a repository that it borrows objects from")
            _check_folder(other, entries, allowed)
            _check_folder(other / "info", entries, allowed)
        found |= dict.fromkeys(level)
    raise PathRefused("it borrows objects over more than five repositories")


def _alternates(objects: Path) -> list[Path]:
    """What one object directory says that it borrows from, read as git does."""
    try:
        data = whole(objects / "info" / "alternates", _LARGEST_ALTERNATES)
    except FileNotFoundError:
        return []
    lines = [line for line in data.split(b"\n") if line and not line.startswith(b"#")]
    if any(line.startswith(b'"') for line in lines):  # these may have escapes, and go on after the quote
        raise PathRefused("a repository that it borrows objects from is named in quotes")
    _check_number(len(lines))
    return [Path(os.path.realpath(objects / os.fsdecode(line))) for line in lines]


def _check_number(borrowed: int) -> None:
    if borrowed > _MOST_BORROWED:
        raise PathRefused(f"it borrows objects from more than {_MOST_BORROWED} repositories")


def _inside(path: Path, allowed: Sequence[Path], what: str) -> None:
    if not any(path.is_relative_to(root) for root in allowed):
        raise PathRefused(f"{what} is outside the directories in which repositories may be used")


Reader = Callable[[tuple[str, ...], Place], Awaitable[bytes]]
"""The output of a git command that only reads, in a place.

Raises:
    PathRefused: it failed, or says too much.
"""

_DEEPEST = 5
_RUNS = re.compile(r"core\.(fsmonitor|hookspath)|filter\..*\.(clean|smudge|process)", re.DOTALL | re.IGNORECASE)
_HARMLESS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0", ""})


async def check_nested(place: Place, roots: Sequence[str], read: Reader, depth: int = 0) -> None:
    """Look at every submodule that is there, and at those within.

    Raises:
        PathRefused: the configuration of one names a program, or one lies too deep to look at.
    """
    if not place.tree:
        return
    listed = await read(("ls-files", "-s", "-z", "--", ":/"), place)
    for path in await asyncio.to_thread(_present, place.tree, listed):
        if depth == _DEEPEST:
            raise PathRefused(f"submodules are nested more than {_DEEPEST} deep: {path[:200]}")
        inner = await asyncio.to_thread(place_of, str(Path(place.tree, path)), roots)
        for key, value, _ in await asyncio.to_thread(entries_of, await read(LISTING, inner)):
            if _RUNS.fullmatch(key) and value.lower() not in _HARMLESS:
                raise PathRefused(
                    f"the submodule {path[:200]} names a program in its configuration (`{key[:100]}`), which git would "
                    "run to see whether it changed"
                )
        await check_nested(inner, roots, read, depth + 1)


def _present(tree: str, listed: bytes) -> list[str]:
    """The submodules that are there, of what `ls-files -s -z` listed: their paths in the tree."""
    links = (entry.partition(b"\t")[2] for entry in listed.split(b"\0") if entry.startswith(b"160000 "))
    paths = [link.decode("utf-8", "surrogateescape") for link in links]
    return [path for path in paths if Path(tree, path, ".git").exists()]


_INCLUDE = re.compile(r"include\.path|includeif\..*\.path", re.DOTALL)


def check_files(place: Place, entries: Iterable[Entry], roots: Sequence[str], *, blames: bool) -> None:
    """Look at every file that git would read. `blames`: whether it is `git blame` that reads.

    Raises:
        PathRefused: one lies outside.
    """
    allowed = [os.path.realpath(root) for root in roots]
    for entry in entries:
        if _INCLUDE.fullmatch(entry.key):
            base = Path(place.directory, entry.origin).parent
        elif blames and entry.key == "blame.ignorerevsfile":
            base = Path(place.tree or place.git_dir)
        else:
            continue
        real = Path(os.path.realpath(base / entry.value))
        outside = entry.value.startswith(("~", "%")) or not any(real.is_relative_to(root) for root in allowed)
        if entry.value and outside:
            raise PathRefused(f"`{entry.key[:100]}` of the repository names a file elsewhere: {entry.value[:200]}")
