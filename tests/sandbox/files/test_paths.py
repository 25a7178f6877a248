"""Files beneath a root: which paths lead to a file, which ones are refused, and how files are written."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from unicodedata import category

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbridge.base.errors import PathRefused
from mcpbridge.sandbox.files.names import Sealed, display_name, fold, parts_of
from mcpbridge.sandbox.files.paths import Root, entries
from mcpbridge.sandbox.files.rules import Globs, Rules, WrongGlob
from mcpbridge.sandbox.files.walk import can_openat2
from mcpbridge.sandbox.files.write import Changed, write
from support.sandbox.odd_paths import ALLOWED, REFUSED_AT_SIGHT, STAYS_OUT, UNREAD, UNWRITTEN

SECRET = b"never shown"

FILES = {
    "a.txt": "alpha",
    "a/b/c.txt": "gamma",
    "höhe/ü.txt": "umlaut",
    "空/文.txt": "han",
    "sp ace/x y.txt": "space",
    "12:30.log": "colon",
    "~a": "tilde",
    "#a": "hash",
    "👩\u200d💻.txt": "emoji",
    **dict.fromkeys(("..a", "a..b", "...a"), "dots"),
    **dict.fromkeys((".git/config", ".env", ".ssh/id_rsa", "hidden/x", "server.pem", "id_ed25519"), "private"),
}
LINKS = {
    "to-a": "a.txt",
    "to-dir": "a/b",
    "a/back": "..",
    "a/b/up2": "../..",
    "deep1": "deep2",
    "deep2": "to-dir/c.txt",
    "out": "../outside",
    "a/up": "../..",
    "chain1": "chain2",
    "chain2": "out",
    "loop": "loop",
    "loop1": "loop2",
    "loop2": "loop1",
    "self": "../root/out",
    "dangling": "missing/x",
    "a/far": "../../../../../../../etc/passwd",
    "a/etc": "/etc/passwd",
    "to-git": ".git",
    "to-env": "a/back/.env",
    "to-fifo": "fifo",
    "to-null": "/dev/null",
}
WAYS = ["openat2", "walk"] if can_openat2() else ["walk"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """`root` with files and links of many kinds, and `outside` beside it."""
    top = tmp_path / "root"
    for name, content in FILES.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(content)
    for name, target in LINKS.items():
        (top / name).symlink_to(target)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_bytes(SECRET)
    (top / "abs").symlink_to(tmp_path / "outside")
    (top / "to-abs").symlink_to(top / "a.txt")
    (top / "to-dir-abs").symlink_to(top / "a/b")
    os.mkfifo(top / "fifo")
    (tmp_path / "spelt").symlink_to(top)
    return tmp_path


@pytest.fixture(params=WAYS)
def root(tree: Path, request: pytest.FixtureRequest) -> Iterator[Root]:
    rules = Rules(deny=["hidden"], protect=["sub/secrets", "sub/**/*.lock"])
    made = Root(tree / "spelt", rules=rules, uses_openat2=request.param == "openat2")
    yield made
    made.close()


def parts(root: Root, path: str) -> tuple[str, ...]:
    """As the tools take a path that may be absolute."""
    names = parts_of(path)
    if not path.startswith("/"):
        return names
    beneath = root.beneath("/".join(names))
    if beneath is None:
        raise PathRefused(path)
    return tuple(beneath)


def read(root: Root, path: str) -> bytes:
    with root.opened(parts(root, path)) as opened:
        return opened.read(1000)


def everything(top: Path) -> dict[str, tuple[int, bytes]]:
    """All that stands in a tree, to see that nothing changed."""
    return {
        str(path.relative_to(top)): (path.lstat().st_ino, path.read_bytes() if path.is_file() else b"")
        for path in sorted(top.rglob("*"))
        if not path.is_symlink()
    }


# --- reading


def test_paths_that_look_wrong_are_refused() -> None:
    for path in REFUSED_AT_SIGHT:
        with pytest.raises(PathRefused) as refused:
            parts_of(path)
        told = str(refused.value)
        assert len(told) < 400, path
        assert not any(category(one) in {"Cc", "Cs", "Zl", "Zp"} for one in told), repr(told)


def test_paths_that_lead_elsewhere_read_nothing(root: Root, tree: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        before = Path.cwd()
        os.chdir(tree / "root")  # the path of a socket is short
        try:
            listening.bind("socket")
        finally:
            os.chdir(before)
        for form in STAYS_OUT:
            path = form.format(root=tree / "root", outside=tree / "outside")
            with pytest.raises((PathRefused, OSError)):
                raise AssertionError(path, read(root, path))


def test_honest_paths_are_read(root: Root, tree: Path) -> None:
    for form, content in ALLOWED:
        path = form.format(root=tree / "root", spelt=tree / "spelt")
        assert read(root, path).decode() == content, path


def test_what_holds_secrets_by_its_name_is_not_read_unless_configured(root: Root, tree: Path) -> None:
    for path in UNREAD:
        with pytest.raises((PathRefused, FileNotFoundError)):  # where case counts, `.SSH` is another one
            read(root, path)
        is_link = path.startswith("to-")  # its own name says nothing; what it leads to is refused above
        assert bool(root.why_unread(parts_of(path), None)) is not is_link
    opened = Root(tree / "root", rules=Rules(reads_private=True))
    assert read(opened, ".env") == read(opened, "to-env") == read(opened, ".git/config") == b"private"
    for path in (".env.example", "id_rsa.pub", ".github/x.yml", "environment", "key.txt"):
        assert not Rules().why_unread(parts_of(path)), path


def test_the_corpus_is_as_large_as_promised() -> None:
    """Issue 8: more may come, none may drop out unnoticed."""
    assert len({*REFUSED_AT_SIGHT, *STAYS_OUT, *(path for path, _ in ALLOWED), *UNREAD, *UNWRITTEN}) >= 153


PIECES = st.sampled_from(
    ["", ".", "..", "a", "b", "a.txt", "c.txt", "outside", "secret.txt", "root", "missing", "config", "fifo", *LINKS]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(names=st.lists(PIECES, max_size=12), is_absolute=st.booleans())
def test_whatever_is_put_together_reads_what_is_inside_or_nothing(
    root: Root, tree: Path, names: list[str], is_absolute: bool
) -> None:
    """What is read is what the path really names beneath the root, links resolved by the system itself."""
    path = "/".join(names)
    if is_absolute:
        path = f"{tree}/root/{path}"
    try:
        content = read(root, path)
    except (PathRefused, OSError):
        return
    plain = os.path.normpath(path if is_absolute else f"{tree}/root/{path}")
    real = Path(os.path.realpath(plain))
    assert real.is_relative_to(os.path.realpath(tree / "root"))
    assert content == real.read_bytes()


@given(st.text(max_size=60))
def test_parts_are_plain_names_or_the_path_is_refused(path: str) -> None:
    try:
        names = parts_of(path)
    except PathRefused:
        return
    assert all(name and name not in (".", "..") and "/" not in name and "\x00" not in name for name in names)
    assert parts_of("/".join(names)) == names


def test_both_ways_agree(tree: Path) -> None:
    roots = [Root(tree / "root", uses_openat2=uses) for uses in (True, False)]

    def outcome(root: Root, path: str) -> object:
        try:
            return read(root, path)
        except (PathRefused, OSError) as error:
            return type(error)

    for path in [*FILES, *LINKS, *STAYS_OUT, *(path for path, _ in ALLOWED)]:
        assert outcome(roots[0], path) == outcome(roots[1], path), path


@pytest.mark.parametrize("name", ["null", "zero", "tty"])
def test_devices_are_not_opened(name: str) -> None:
    with pytest.raises((PathRefused, FileNotFoundError), match=r"device|tty"):
        read(Root("/dev"), name)


def test_what_the_kernel_makes_up_is_not_read() -> None:
    """It would tell the environment of the bridge."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("this system has no /proc")
    for root, path in ((Root("/"), "/proc/self/environ"), (Root("/proc"), f"{os.getpid()}/environ")):
        with pytest.raises(PathRefused, match="belongs to the system"):
            read(root, path)


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the name and its opening."""
    root = Root(tree / "root")
    really = os.open

    def swapped(path: str, *args: int, **kwargs: int) -> int:
        if path == "a.txt":
            (tree / "root/a.txt").unlink()
            os.mkfifo(tree / "root/a.txt")
        return really(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(PathRefused, match="a pipe"):
        read(root, "a.txt")


def test_where_the_kernel_has_no_openat2_it_is_walked(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcpbridge.sandbox.files.walk.can_openat2", lambda: True)

    def forbidden(*_: object) -> int:
        raise OSError(1, "not permitted")  # as the filters of some containers say it

    monkeypatch.setattr("mcpbridge.sandbox.files.walk.open_directory", forbidden)
    root = Root(tree / "root")
    assert read(root, "to-dir/c.txt") == b"gamma"
    with pytest.raises(PathRefused):
        read(root, "out/secret.txt")


# --- the root itself


def test_a_root_that_is_made_anew_is_taken_up_and_a_link_in_its_place_is_not(tree: Path) -> None:
    """Whoever may write beside a root must not be able to point it elsewhere."""
    top = tree / "root"
    root = Root(top)
    assert read(root, "a.txt") == b"alpha"
    top.rename(tree / "old")
    with pytest.raises(PathRefused, match="the root does not exist"):
        read(root, "a.txt")
    top.mkdir()
    (top / "a.txt").write_text("anew")
    assert read(root, "a.txt") == b"anew"
    top.rename(tree / "older")
    top.symlink_to(tree / "outside")
    with pytest.raises(PathRefused, match="the root does not exist"):
        read(root, "secret.txt")
    root.close()
    with pytest.raises(PathRefused, match="the root does not exist"):
        read(root, "secret.txt")


def test_no_descriptor_is_left_open(root: Root, tree: Path) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("this system does not list descriptors")
    read(root, "a.txt")
    before = _descriptors()
    for path in [*FILES, *LINKS, *STAYS_OUT[:20]]:
        try:
            read(root, path)
        except (PathRefused, OSError):
            pass
        try:
            write(root, parts_of(path), lambda _: b"x")
        except (PathRefused, OSError):
            pass
        try:
            next(entries(root, parts_of(path), depth=3, hidden=True))
        except (PathRefused, OSError, StopIteration):
            pass
    assert not _descriptors() - before


def _descriptors() -> Counter[str]:
    """What is open, and how often. What others close meanwhile is not ours."""
    found = Counter[str]()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it was that of the listing itself
            found[str(entry.readlink())] += 1
    return found


def test_the_bridges_own_files_are_neither_read_nor_written(tree: Path) -> None:
    top = tree / "root"
    (top / "servers.toml").write_text("secret")
    (top / "state").mkdir()
    (top / "state/log").write_text("secret")
    os.link(top / "servers.toml", top / "second-name")
    (top / "to-state").symlink_to("state")
    root = Root(top, sealed=Sealed([top / "servers.toml", tree / "spelt/state", top / "store.db", top / "a"]))
    for path in ("servers.toml", "SERVERS.toml", "second-name", "state/log", "state/new", "State/log", "to-state/log"):
        with pytest.raises((PathRefused, FileNotFoundError)):
            read(root, path)
        with pytest.raises(PathRefused):
            write(root, parts_of(path), lambda _: b"x", makes_directories=True)
    for path in ("store.db", "store.db-wal", "servers.toml.bak", "servers.toml~", "a/new"):
        with pytest.raises(PathRefused, match="the bridge's own"):
            write(root, parts_of(path), lambda _: b"x")
    assert {entry.name for entry in entries(root, (), depth=3, hidden=True)}.isdisjoint({"servers.toml", "state", "a"})
    assert write(root, parts_of("store.dbx"), lambda _: b"x").size == 1


# --- writing


def test_what_other_programs_obey_is_never_written(root: Root, tree: Path) -> None:
    before = everything(tree)
    for path in UNWRITTEN:
        with pytest.raises(PathRefused):
            raise AssertionError(
                write(root, parts(root, path.format(root=tree / "root")), lambda _: b"x", makes_directories=True), path
            )
    assert everything(tree) == before


def test_what_leads_elsewhere_is_not_written(root: Root, tree: Path) -> None:
    before = everything(tree)
    for form in STAYS_OUT:
        path = form.format(root=tree / "root", outside=tree / "outside")
        if path in {"%2e%2e/outside/secret.txt", "..%2foutside%2fsecret.txt", "..%c0%af..%c0%afetc/passwd"}:
            continue  # odd names, beneath the root
        try:
            written = write(root, parts(root, path), lambda _: b"x")
        except (PathRefused, OSError):
            continue
        root.path.joinpath(*written.parts).unlink()  # new, and beneath
    assert everything(tree) == before


IGNORED = st.sampled_from(["\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\ufe0f"])


@given(
    name=st.sampled_from([".git", ".mcp.json", ".vscode", ".bashrc", ".ssh", ".env", ".claude"]),
    upper=st.lists(st.booleans(), min_size=12, max_size=12),
    wide=st.lists(st.booleans(), min_size=12, max_size=12),
    unseen=st.lists(st.tuples(st.integers(0, 8), IGNORED), max_size=4),
    end=st.sampled_from(["", ".", " ", "...", ":x", " .:y"]),
)
def test_no_spelling_of_a_protected_name_is_written(
    name: str, upper: list[bool], wide: list[bool], unseen: list[tuple[int, str]], end: str
) -> None:
    odd = [one.upper() if up else one for one, up in zip(name, upper, strict=False)]
    odd = [chr(ord(one) + 0xFEE0) if to_wide else one for one, to_wide in zip(odd, wide, strict=False)]
    for at, character in unseen:
        odd.insert(at, character)
    spelt = f"{''.join(odd)}{end}"
    assert fold(spelt) == name
    assert Rules().why_unwritten((spelt, "x"))
    assert Rules().why_unwritten(("sub", spelt))


def test_files_are_written_whole_and_keep_their_mode(root: Root, tree: Path) -> None:
    top = tree / "root"
    (top / "a.txt").chmod(0o751)
    number = (top / "a.txt").stat().st_ino
    written = write(root, ("a.txt",), lambda opened: opened.read(100) + b"!" if opened else b"")
    assert (written.parts, written.size, written.was_there) == (("a.txt",), 6, True)
    assert (top / "a.txt").read_bytes() == b"alpha!"
    assert stat.S_IMODE((top / "a.txt").stat().st_mode) == 0o751
    assert (top / "a.txt").stat().st_ino != number
    write(root, ("to-dir", "new.txt"), lambda opened: b"new" if opened is None else b"")
    assert (top / "a/b/new.txt").read_bytes() == b"new"
    assert stat.S_IMODE((top / "a/b/new.txt").stat().st_mode) == 0o666 & ~_umask()
    assert (top / "a/b/new.txt").stat().st_nlink == 1
    write(root, parts_of("x/y/z.txt"), lambda _: b"", makes_directories=True)
    assert (top / "x/y/z.txt").read_bytes() == b""
    write(root, ("to-a",), lambda _: b"through a link beneath the root")
    assert (top / "a.txt").read_bytes() == b"through a link beneath the root"
    assert (top / "to-a").is_symlink()
    assert list(top.rglob(".mcpbridge-*")) == []


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_is_not_a_plain_writable_file_is_not_written(root: Root, tree: Path) -> None:
    top = tree / "root"
    os.link(tree / "outside/secret.txt", top / "hard")
    (top / "fixed").write_text("x")
    (top / "fixed").chmod(0o444)
    for path, why in (
        ("hard", "hard links"),
        ("fixed", "not to be written"),
        ("fifo", "a pipe"),
        ("to-fifo", "a pipe"),
    ):
        with pytest.raises(PathRefused, match=why):
            write(root, parts_of(path), lambda _: b"x")
    for path, kind in (("a", IsADirectoryError), ("", IsADirectoryError), ("no/x", FileNotFoundError)):
        with pytest.raises(kind):
            write(root, parts_of(path), lambda _: b"x")
    with pytest.raises(NotADirectoryError):
        write(root, parts_of("a.txt/x"), lambda _: b"x", makes_directories=True)
    with pytest.raises(FileExistsError):
        write(root, ("a.txt",), lambda _: b"x", replaces=False)
    with pytest.raises(FileNotFoundError):
        write(root, ("none",), lambda _: b"x", creates=False)
    assert (tree / "outside/secret.txt").read_bytes() == SECRET


@pytest.mark.parametrize("interfere", ["change", "replace", "remove", "link"])
def test_a_file_that_somebody_else_changes_meanwhile_is_left_to_them(root: Root, tree: Path, interfere: str) -> None:
    file = tree / "root/a.txt"

    def meanwhile() -> None:
        if interfere == "change":
            file.write_text("theirs")
        else:
            file.unlink()
        if interfere == "replace":
            file.write_text("theirs")
        if interfere == "link":
            file.symlink_to(tree / "outside/secret.txt")

    with pytest.raises(Changed):
        write(root, ("a.txt",), lambda _: b"ours", commit=meanwhile)
    assert (tree / "outside/secret.txt").read_bytes() == SECRET
    if interfere in ("change", "replace"):
        assert file.read_text() == "theirs"
    assert list((tree / "root").glob(".mcpbridge-*")) == []


def test_a_new_file_does_not_replace_one_that_appears_meanwhile(root: Root, tree: Path) -> None:
    with pytest.raises(FileExistsError):
        write(root, ("new",), lambda _: b"ours", commit=lambda: (tree / "root/new").write_text("theirs") and None)
    assert (tree / "root/new").read_text() == "theirs"


def test_a_file_system_without_hard_links_gets_new_files_too(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unable(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", unable)
    root = Root(tree / "root")
    write(root, ("new",), lambda _: b"ours")
    assert (tree / "root/new").read_bytes() == b"ours"
    with pytest.raises(FileExistsError):
        write(root, ("new2",), lambda _: b"ours", commit=lambda: (tree / "root/new2").write_text("theirs") and None)
    assert (tree / "root/new2").read_text() == "theirs"


CRASHING = """
import os, signal, sys
from mcpbridge.sandbox.files.paths import Root
from mcpbridge.sandbox.files.write import write
root = Root(sys.argv[1])
write(root, (sys.argv[2],), lambda _: b"new" * 100_000, commit=lambda: os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.mark.parametrize(("name", "left"), [("a.txt", b"alpha"), ("new.txt", None)])
def test_a_process_that_is_killed_while_it_writes_leaves_the_file_as_it_was(
    tree: Path, name: str, left: bytes | None
) -> None:
    ended = subprocess.run([sys.executable, "-c", CRASHING, str(tree / "root"), name], check=False)
    assert ended.returncode == -signal.SIGKILL
    file = tree / "root" / name
    assert (file.read_bytes() if file.exists() else None) == left


def test_readers_see_the_old_content_or_the_new(tree: Path) -> None:
    root, file = Root(tree / "root"), tree / "root/a.txt"
    write(root, ("a.txt",), lambda _: b"0" * 50_000)
    seen, done = set[bytes](), threading.Event()

    def look() -> None:
        while not done.is_set():
            content = file.read_bytes()
            seen.add(content[:1] if content == content[:1] * 50_000 else content)

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(60):
        write(root, ("a.txt",), lambda _, number=number: str(number % 10).encode() * 50_000)
    done.set()
    reader.join()
    assert seen <= {str(number).encode() for number in range(10)}


# --- what stands there


def test_a_tree_is_told_in_order_and_links_are_not_followed(root: Root) -> None:
    found = {"/".join(entry.parts): entry for entry in entries(root, (), depth=9, hidden=False)}
    assert "a/b/c.txt" in found
    assert not any(path.startswith((".", "hidden", "out/", "to-dir/", "abs/")) for path in found)
    assert found["a"].is_directory
    assert "/".join(p for p in found if p in {"a", "a.txt", "a/b", "a/b/c.txt"}) == "a/a/b/a/b/c.txt/a.txt"
    assert [entry.name for entry in entries(root, ("a",), depth=1, hidden=True)] == ["b", "back", "etc", "far", "up"]
    targets = [entry.target() for entry in entries(root, ("a",), depth=1, hidden=True) if entry.name == "up"]
    assert targets == ["../.."]
    assert all(
        entry.beneath[0] == "b"
        for entry in entries(root, parts_of("a/back/a"), depth=2, hidden=True)
        if len(entry.beneath) > 1
    )
    for path, error in (("hidden", PathRefused), ("out", PathRefused), ("a.txt", NotADirectoryError)):
        with pytest.raises(error):
            list(entries(root, parts_of(path), depth=1, hidden=True))


GLOBS: list[tuple[str, str, bool]] = [
    *(("*.py", "a.py", True), ("*.py", "x/a.py", True), ("*.py", "a.pyc", False), ("/*.py", "x/a.py", False)),
    *(("src/*.py", "src/a.py", True), ("src/*.py", "src/x/a.py", False), ("src/**/*.py", "src/a.py", True)),
    *(("src/**/*.py", "src/x/y/a.py", True), ("**/a", "a", True), ("**/a", "x/y/a", True), ("**", "x/y", True)),
    *(
        ("*.{ts,tsx}", "x/a.tsx", True),
        ("{a,b}/{c,d}", "b/c", True),
        ("{a,b}/{c,d}", "c/b", False),
        ("a?c", "abc", True),
    ),
    *(("[ab].txt", "b.txt", True), ("[!a].txt", "a.txt", False), ("./a/b", "a/b", True), ("a/**", "a/b/c", True)),
    *(("A.txt", "a.txt", False), ("a{", "a{", True), ("**/x/**/y", "a/x/b/c/y", True), ("x/**/y/**/z", "x/z", False)),
]


def test_globs_match_paths() -> None:
    for pattern, path, expected in GLOBS:
        globs, names = Globs([pattern]), tuple(path.split("/"))
        assert globs.matches(names) is expected, (pattern, path)
        if expected:
            assert all(globs.leads(names[:length]) for length in range(len(names))), (pattern, path)
    assert Globs(["Data"], folds=True).touches(("x", "dATA", "y"))
    assert Globs(["a/*/c"]).touches(("a", "b", "c", "d"))
    assert not Globs(["src/*.py"]).leads(("docs",))
    assert not Globs()
    for pattern in ("a" * 501, "{a,b}" * 7):
        with pytest.raises(WrongGlob):
            Globs([pattern])


def test_no_glob_takes_long() -> None:
    """Patterns come from models: no backtracking."""
    done: list[bool] = []
    for pattern, path in (
        ("*a" * 100 + "b", "a" * 255),
        ("**/a/" * 40 + "b", "/".join("a" * 100)),
        ("?*" * 120, "a" * 255),
    ):
        done.append(Globs([pattern]).matches(tuple(path.split("/"))))
    assert done == [False, False, True]


def test_names_are_shown_on_one_line() -> None:
    assert display_name("a\nb\x1b[2J\u202e\udcff") == "a\\x0ab\\x1b[2J\\u202e\\xff"
    assert len(display_name("x" * 5000)) == 201


def test_makers_see_an_open_file(root: Root) -> None:
    got: list[tuple[int, bytes]] = []
    make: Callable[..., bytes] = lambda opened: got.append((opened.status.st_size, opened.read(3, 1))) or b"y"  # noqa: E731
    write(root, ("a.txt",), make)
    assert got == [(5, b"lph")]
