"""Files that have a second name (a hard link), which may be one outside of the root."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after

from mcpbridge.base.errors import PathRefused
from mcpbridge.core.model import BRIDGE, Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.sandbox.files import paths
from mcpbridge.sandbox.files.hard_links import HardLinks
from mcpbridge.sandbox.files.paths import Root
from mcpbridge.tools.builtin.files.access import Files
from mcpbridge.tools.builtin.files.file_list import FileList
from mcpbridge.tools.builtin.files.file_read import FileRead
from mcpbridge.tools.builtin.files.file_search import FileSearch
from mcpbridge.tools.builtin.files.file_write import FileWrite
from mcpbridge.tools.builtin.files.settings import FilesSettings

SECRET = "a secret of the user\n"
TOOLS = {"file-read": FileRead, "file-list": FileList, "file-search": FileSearch, "file-write": FileWrite}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """`root/plain` and `root/sub/plain` with one name; `root/hard` and `root/sub/hard` are `outside/secret` as well."""
    (tmp_path / "root/sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text(SECRET)
    for place in ("root", "root/sub"):
        (tmp_path / place).chmod(0o755)
        (tmp_path / place / "plain").write_text("open to all\n")
        os.link(tmp_path / "outside/secret", tmp_path / place / "hard")
    return tmp_path


async def call(tree: Path, name: str, hard_links: HardLinks | None = None, **arguments: Any) -> dict[str, Any]:
    given = {"roots": [str(tree / "root")], **({} if hard_links is None else {"hard_links": hard_links})}
    files = Files(FilesSettings.model_validate(given))
    try:
        params = Body(encode({"name": name, "arguments": arguments}))
        with fail_after(30):
            return (await TOOLS[name](files).run(Call("tools/call", BRIDGE, name, params))).value()
    finally:
        files.close()


def text_of(result: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"])


OPEN_MODES = [0o775, 0o757, 0o777, 0o1777, 0o770, 0o2775, 0o722, 0o703]


@pytest.mark.parametrize("path", ["hard", "sub/hard"])
@pytest.mark.parametrize("mode", OPEN_MODES, ids=oct)
async def test_where_others_may_write_the_root_no_second_name_is_read(tree: Path, mode: int, path: str) -> None:
    """Issue 18, 8: refused by default for roots that others can write to."""
    (tree / "root").chmod(mode)
    with pytest.raises(PathRefused, match="hard_links"):
        await call(tree, "file-read", path=path)
    plain = await call(tree, "file-read", path=path.replace("hard", "plain"))
    assert text_of(plain).startswith("open to all\n")


@pytest.mark.parametrize("mode", OPEN_MODES, ids=oct)
async def test_where_others_may_write_its_directory_no_second_name_is_read(tree: Path, mode: int) -> None:
    """Issue 18, 8: they need not write to the root itself."""
    (tree / "root/sub").chmod(mode)
    with pytest.raises(PathRefused, match="hard_links"):
        await call(tree, "file-read", path="sub/hard")
    assert text_of(await call(tree, "file-read", path="hard")).startswith(SECRET)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")
@pytest.mark.parametrize("path", ["root", "root/sub"])
async def test_a_directory_of_another_user_is_one_that_others_write(tree: Path, path: str) -> None:
    os.chown(tree / path, 12345, 12345)
    with pytest.raises(PathRefused, match="hard_links"):
        await call(tree, "file-read", path="sub/hard")


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o700, 0o711])
async def test_in_a_root_of_the_user_alone_second_names_are_read(tree: Path, mode: int) -> None:
    """Package managers link what they install from a store."""
    (tree / "root").chmod(mode)
    assert text_of(await call(tree, "file-read", path="hard")).startswith(SECRET)
    assert "a secret" in text_of(await call(tree, "file-search", pattern="secret"))
    assert f"{len(SECRET)}  2" in text_of(await call(tree, "file-list", depth=2))


@pytest.mark.parametrize(("hard_links", "mode", "is_read"), [("refuse", 0o700, False), ("allow", 0o777, True)])
async def test_the_setting_decides_whoever_may_write(
    tree: Path, hard_links: HardLinks, mode: int, *, is_read: bool
) -> None:
    (tree / "root").chmod(mode)
    if is_read:
        assert text_of(await call(tree, "file-read", hard_links, path="hard")).startswith(SECRET)
    else:
        with pytest.raises(PathRefused, match="hard_links"):
            await call(tree, "file-read", hard_links, path="hard")
    searched = text_of(await call(tree, "file-search", hard_links, pattern="secret"))
    assert ("a secret" in searched) is is_read


async def test_a_search_skips_them_and_says_so(tree: Path) -> None:
    (tree / "root").chmod(0o777)
    found = text_of(await call(tree, "file-search", pattern="e"))
    assert "open to all" in found
    assert "secret" not in found
    assert "2 not to be read" in found
    with pytest.raises(PathRefused, match="hard_links"):
        await call(tree, "file-search", pattern="secret", path="hard")


async def test_a_list_names_them_and_describes_nothing(tree: Path) -> None:
    (tree / "root").chmod(0o777)
    lines = text_of(await call(tree, "file-list", depth=2)).splitlines()
    assert [line for line in lines if "hard" in line] == [
        "hard  (several names: not read)",
        "sub/hard  (several names: not read)",
    ]
    plain = [line for line in lines if "plain" in line]
    assert len(plain) == 2
    assert all("  12  " in line for line in plain)


@pytest.mark.parametrize("hard_links", ["auto", "refuse", "allow"])
@pytest.mark.parametrize(
    "what",
    [
        {"content": "x", "mode": "overwrite"},
        {"content": "x", "mode": "append"},
        {"edits": [{"old": "secret", "new": "x"}]},
    ],
)
async def test_they_are_never_written(tree: Path, hard_links: HardLinks, what: dict[str, Any]) -> None:
    with pytest.raises(PathRefused, match="hard links"):
        await call(tree, "file-write", hard_links, path="hard", **what)
    assert (tree / "outside/secret").read_text() == SECRET
    assert (tree / "root/hard").stat().st_nlink == 3


async def test_once_the_other_names_are_gone_it_is_read(tree: Path) -> None:
    (tree / "root").chmod(0o777)
    (tree / "outside/secret").unlink()
    (tree / "root/sub/hard").unlink()
    assert text_of(await call(tree, "file-read", path="hard")).startswith(SECRET)


LINKER = """
import os, sys
os.chdir(sys.argv[1])
def swap():
    try: os.unlink("root/hard")
    except FileNotFoundError: pass
    os.link("outside/secret", "root/hard")
    os.link("root/plain", "root/beside"); os.rename("root/beside", "root/hard")
swap()
print("ready", flush=True)
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(200):
        swap()
"""


@pytest.fixture
def linking(tree: Path) -> Iterator[None]:
    """Another process links `root/hard` to the secret and takes it away again, all the time."""
    process = subprocess.Popen([sys.executable, "-c", LINKER, str(tree)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        process.communicate()


def reads(tree: Path, least: int, *, is_enough: Callable[[int], bool]) -> int:
    """How often the secret was read in at least so many tries, and then until it is enough."""
    (tree / "root").chmod(0o777)
    (tree / "root/sub/hard").unlink()  # without the link that comes and goes, the secret has one name
    root, got, until = Root(tree / "root"), 0, time.monotonic() + 60
    for number in itertools.count():
        if number >= least and (is_enough(got) or time.monotonic() > until):
            break
        try:
            with root.opened(("hard",)) as opened:
                got += opened.read(100) == SECRET.encode()
        except (PathRefused, FileNotFoundError):
            pass
    root.close()
    return got


@pytest.mark.usefixtures("linking")
def test_counting_the_names_of_what_is_open_would_not_do(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness: the link is taken away before its names are counted, so one is left, that outside."""
    counting: Callable[[str, int, int], bool] = lambda name, directory, descriptor: os.fstat(descriptor).st_nlink <= 1  # noqa: E731
    monkeypatch.setattr(paths, "is_only_name", counting)
    assert reads(tree, 1, is_enough=bool)


@pytest.mark.usefixtures("linking")
def test_nobody_gets_one_read_by_making_and_removing_it_meanwhile(tree: Path) -> None:
    """It had one name all the while in which they were counted."""
    assert reads(tree, 5000, is_enough=lambda got: True) == 0


ADDER = """
import sys
file = open(sys.argv[1], "a", buffering=1)
file.write("x\\n")
print("ready", flush=True)
while True:
    file.write("x\\n")
"""


def test_a_file_that_is_written_all_the_time_is_read_all_the_same(tree: Path) -> None:
    """A log to which somebody adds is no link from outside."""
    (tree / "root").chmod(0o777)
    log = tree / "root/log"
    process = subprocess.Popen([sys.executable, "-c", ADDER, str(log)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        root = Root(tree / "root")
        for _ in range(50):
            with root.opened(("log",)) as opened:
                assert opened.read(2) == b"x\n"
        root.close()
    finally:
        process.kill()
        process.communicate()
