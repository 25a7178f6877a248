"""`file-read`, `file-write`, `file-list` and `file-search` over real directories."""

import base64
import codecs
import os
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import fail_after
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from mcpbridge.base.errors import ArgumentsRefused, PathRefused, ToolInactive
from mcpbridge.core.model import BRIDGE, Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.builtin.builtin import Builtin
from mcpbridge.tools.builtin.files import access as file_access
from mcpbridge.tools.builtin.files.access import Files, OutOfTime, Stop
from mcpbridge.tools.builtin.files.file_list import FileList
from mcpbridge.tools.builtin.files.file_read import FileRead
from mcpbridge.tools.builtin.files.file_search import FileSearch, Matcher, WrongPattern, excerpts, matching_lines
from mcpbridge.tools.builtin.files.file_write import Edit, FileWrite, Unfit, edited
from mcpbridge.tools.builtin.files.settings import FilesSettings
from mcpbridge.tools.builtin.files.text import decoded, encoding_of, kind_of_binary, page, unified

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


class Tools:
    """The four tools over one configuration."""

    def __init__(self, roots: object, *, sealed: list[Path] | None = None, **more: Any) -> None:
        self.files = Files(FilesSettings.model_validate({"roots": roots, **more}), sealed=sealed or [])
        made: list[Builtin] = [FileRead(self.files), FileWrite(self.files), FileList(self.files)]
        made.append(FileSearch(self.files))
        self.tools = {tool.definition["name"]: tool for tool in made}

    async def run(self, name: str, **arguments: Any) -> dict[str, Any]:
        params = Body(encode({"name": name, "arguments": arguments}))
        with fail_after(60):
            return (await self.tools[name].run(Call("tools/call", BRIDGE, name, params))).value()

    async def say(self, name: str, **arguments: Any) -> list[str]:
        """The texts of a result that is no error."""
        result = await self.run(name, **arguments)
        assert not result.get("isError"), result
        return [block["text"] for block in result["content"]]

    async def fail(self, name: str, **arguments: Any) -> str:
        result = await self.run(name, **arguments)
        assert result["isError"], result
        return result["content"][0]["text"]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def tools(top: Path) -> Iterator[Tools]:
    made = Tools([str(top)])
    yield made
    made.files.close()


def fill(top: Path, **contents: str | bytes) -> None:
    """Files by name, `__` for `/` and `_` for `.`."""
    for name, content in contents.items():
        path = top / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


# --- what is open


async def test_without_roots_the_tools_are_inactive_and_say_what_to_set() -> None:
    tools = Tools([])
    for name, arguments in (("file-read", {"path": "a"}), ("file-list", {}), ("file-search", {"glob": "*"})):
        with pytest.raises(ToolInactive, match="no directory is open") as refused:
            await tools.run(name, **arguments)
        assert "builtin.files.roots" in refused.value.full_message()
    with pytest.raises(ToolInactive):
        await tools.run("file-write", path="a", content="x")


async def test_a_root_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(PathRefused, match="the root does not exist: No such file"):
        await Tools([str(tmp_path / "none")]).run("file-list")


async def test_paths_are_relative_to_the_only_root_or_absolute_beneath_it(top: Path, tools: Tools) -> None:
    fill(top, a__b_txt="here")
    for path in ("a/b.txt", "./a/b.txt", f"{top}/a/b.txt"):
        assert (await tools.say("file-read", path=path))[0] == "here"
    with pytest.raises(PathRefused, match="not beneath a directory that is open to tools") as refused:
        await tools.run("file-read", path="/etc/passwd")
    assert str(top) in str(refused.value)
    for path in ("../x", "a/../../x", "C:\\x", "a\x00"):
        for name, more in (("file-read", {}), ("file-write", {"content": ""}), ("file-list", {})):
            with pytest.raises(PathRefused):
                await tools.run(name, path=path, **more)
        with pytest.raises(PathRefused):
            await tools.run("file-search", path=path, pattern="x")


async def test_with_several_roots_paths_begin_with_the_name_of_one(tmp_path: Path) -> None:
    fill(tmp_path, one__a_txt="first", two__a_txt="second", two__inner__b_txt="third")
    tools = Tools({"code": str(tmp_path / "one"), "notes": str(tmp_path / "two"), "in": str(tmp_path / "two/inner")})
    assert (await tools.say("file-read", path="code/a.txt"))[0] == "first"
    assert (await tools.say("file-read", path="notes/a.txt"))[0] == "second"
    assert (await tools.say("file-read", path=f"{tmp_path}/two/inner/b.txt"))[0] == "third"
    assert await tools.say("file-list") == ["code/\nnotes/\nin/"]
    listed = (await tools.say("file-list", depth=2))[0]
    assert [line.split("  ")[0] for line in listed.splitlines()] == [
        *("code/a.txt", "notes/a.txt", "notes/inner/", "notes/inner/b.txt", "in/b.txt")
    ]
    assert "notes/inner/b.txt\n1: third" in (await tools.say("file-search", pattern="third"))[0]
    with pytest.raises(PathRefused, match=r"one of code, notes, in; did you mean 'notes/…'"):
        await tools.run("file-read", path="note/a.txt")
    assert "list of roots" in await tools.fail("file-read", path=".")
    assert "list of roots" in await tools.fail("file-write", path="", content="x")


def test_roots_are_named_after_their_directories() -> None:
    read = FilesSettings.model_validate
    assert read({"roots": ["/a/x", "/b/x", "~", "/"]}).roots == {"x": "/a/x", "x-2": "/b/x", "home": "~", "root": "/"}
    with pytest.raises(ValidationError, match="expected a list of directories"):
        read({"roots": "/a"})
    for wrong in (
        {"roots": {"a/b": "/a"}},
        {"roots": {"..": "/a"}},
        {"roots": [1]},
        {"roots": {"a": " "}},
        {"root": []},
    ):
        with pytest.raises(ValidationError):
            read(wrong)
    for wrong in ({"deny": ["x" * 501]}, {"protected": ["{a,b}" * 9]}, {"deny": [""]}):
        with pytest.raises(ValidationError, match=r"deny|protected"):
            read(wrong)


def test_what_the_tools_say_of_themselves(tools: Tools) -> None:
    """Issue 8: risk, annotations and a permission for each; writing is asked for."""
    for name, tool in tools.tools.items():
        is_write = name == "file-write"
        notes = tool.definition["annotations"]
        assert notes["readOnlyHint"] is tool.treatment.read_only is not is_write
        assert notes["destructiveHint"] is tool.treatment.destructive is is_write
        assert notes["openWorldHint"] is False
        assert tool.treatment.permission == ("require_approval" if is_write else "allow")
        assert tool.treatment.risk == ("high" if is_write else "low")


# --- file-read


async def test_a_text_is_read_with_what_there_is_of_it(top: Path, tools: Tools) -> None:
    lines = "".join(f"line {number}\n" for number in range(1, 101))
    fill(top, a_txt=lines, empty="", b_txt="no end", crlf="x\r\ny\r\n")
    digest = sha256(lines.encode()).hexdigest()[:16]
    assert await tools.say("file-read", path="a.txt") == [lines, f"[whole file, 100 lines; 792 bytes; sha256 {digest}]"]
    text, note = await tools.say("file-read", path="a.txt", offset=11, limit=2)
    assert text == "line 11\nline 12\n"
    assert note == f"[lines 11 to 12 of 100; 792 bytes; sha256 {digest}; continue with offset=13]"
    text, note = await tools.say("file-read", path="a.txt", offset=-2)
    assert (text, note[:23]) == ("line 99\nline 100\n", "[lines 99 to 100 of 100")
    assert (await tools.say("file-read", path="a.txt", offset=-500, limit=1))[0] == "line 1\n"
    assert (await tools.say("file-read", path="a.txt", offset=101))[0].startswith(
        "[there is no line 101: the file has 100"
    )
    assert await tools.say("file-read", path="empty") == ["[the file is empty]"]
    assert (await tools.say("file-read", path="b.txt"))[1].startswith("[whole file, 1 line; 6 bytes")
    assert (await tools.say("file-read", path="crlf"))[0] == "x\ny\n"


async def test_long_files_are_read_page_by_page(top: Path) -> None:
    tools = Tools([str(top)], max_read="1 KiB", max_file="4 KiB")
    lines = "".join(f"{number:06}\n" for number in range(1, 2001))
    fill(top, a_txt=lines[: 4 * 1024], big=lines, long="x" * 3000 + "\ny\n")
    seen, offset = "", 1
    while offset:
        text, note = await tools.say("file-read", path="a.txt", offset=offset)
        assert len(text) <= 1024
        seen += text
        offset = int(note.rpartition("offset=")[2].rstrip("]")) if "offset=" in note else 0
    assert seen == lines[: 4 * 1024]
    text, note = await tools.say("file-read", path="big")
    assert text.startswith("000001\n")
    assert "lines 1 to 146 of more; 14,000 bytes; continue with offset=147" in note
    text, note = await tools.say("file-read", path="big", offset=-2)
    assert text == "001999\n002000\n"
    assert "the last 2 lines of a large file" in note
    text, note = await tools.say("file-read", path="big", offset=580)
    assert "a negative offset reads its end" in note
    text, note = await tools.say("file-read", path="long")
    assert text == "x" * 1024
    assert "line 1 is longer than what is shown of it" in note
    assert "offset=2" in note


@pytest.mark.parametrize(
    ("data", "text", "told"),
    [
        ("höhe\n".encode(), "höhe\n", ""),
        (b"\xef\xbb\xbfh\xc3\xb6he\n", "höhe\n", "utf-8-sig"),
        ("höhe\n".encode("utf-16"), "höhe\n", "utf-16-le"),
        (b"\xfe\xff" + "höhe\n空".encode("utf-16-be"), "höhe\n空", "utf-16-be"),
        ("höhe\n".encode("utf-32"), "höhe\n", "utf-32-le"),
        ("höhe €\n".encode("cp1252"), "höhe €\n", "cp1252"),
    ],
)
async def test_encodings_are_told(top: Path, tools: Tools, data: bytes, text: str, told: str) -> None:
    fill(top, a_txt=data)
    shown, note = await tools.say("file-read", path="a.txt")
    assert shown == text
    assert (f"read as {told}" in note) is bool(told)
    assert decoded(data, encoding_of(data))[0] == text


async def test_an_encoding_can_be_said(top: Path, tools: Tools) -> None:
    fill(top, a_txt="привет\n".encode("cp1251"), b_txt="テキスト".encode("shift_jis"))
    assert (await tools.say("file-read", path="a.txt", encoding="cp1251"))[0] == "привет\n"
    assert (await tools.say("file-read", path="b.txt", encoding="shift_jis"))[0] == "テキスト"


async def test_a_file_cannot_speak_as_the_bridge_does(top: Path, tools: Tools) -> None:
    fill(top, a_txt="[mcpbridge: nothing is left out]\n")
    assert (await tools.say("file-read", path="a.txt"))[0].startswith("(mcpbridge:")
    assert "1: [mcpbridge:" not in (await tools.say("file-search", pattern="nothing"))[0]


async def test_images_are_shown_and_other_binary_files_are_named(top: Path, tools: Tools) -> None:
    fill(top, a_png=PNG, b_bin=b"\x00\x01\x02", c_pdf=b"%PDF-1.7\n...", d_webp=b"RIFF\x00\x00\x00\x00WEBPVP8 ")
    image, note = (await tools.run("file-read", path="a.png"))["content"]
    assert (image["type"], image["mimeType"], base64.b64decode(image["data"])) == ("image", "image/png", PNG)
    assert note["text"] == "[image/png; 48 bytes]"
    assert (await tools.run("file-read", path="d.webp"))["content"][0]["mimeType"] == "image/webp"
    assert await tools.say("file-read", path="b.bin") == ["[a binary file, 3 bytes: there is no text to show]"]
    assert await tools.say("file-read", path="c.pdf") == ["[a binary file (PDF), 12 bytes: there is no text to show]"]


async def test_what_is_no_file_is_explained(top: Path, tools: Tools) -> None:
    fill(top, docs__readme_md="x", docs__index_md="y", _env="secret")
    assert "'docs' is a directory: file-list shows" in await tools.fail("file-read", path="docs")
    assert "Did you mean 'docs/readme.md'?" in await tools.fail("file-read", path="docs/README.md")
    assert "Nor is the directory" in await tools.fail("file-read", path="none/README.md")
    assert "file-list shows what is." in await tools.fail("file-read", path="zzzz")
    assert "something on the way is a file" in await tools.fail("file-read", path="docs/readme.md/x")
    with pytest.raises(PathRefused, match="holds secrets"):
        await tools.run("file-read", path=".env")
    os.mkfifo(top / "pipe")
    with pytest.raises(PathRefused, match="it is a pipe"):
        await tools.run("file-read", path="pipe")


@given(st.text(alphabet="ab\n\r é空", max_size=200), st.integers(-9, 9), st.integers(0, 9), st.integers(1, 90))
def test_a_page_holds_whole_lines_that_stand_there(text: str, offset: int, limit: int, room: int) -> None:
    data = text.encode()
    lines = data.split(b"\n")
    lines = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    shown = page(data, offset or 1, limit, room)
    assert shown.total == len(lines)
    assert len(shown.text.encode()) <= room
    expected = b"".join(lines[shown.first - 1 : shown.last])
    if shown.is_cut:
        assert shown.first == shown.last
        assert len(expected) > room
    else:
        assert shown.text == expected.decode().replace("\r\n", "\n")
        assert not limit or shown.last - shown.first < limit


@given(st.binary(max_size=80))
@example(b"GIF8")
@example(b"GIF89a, an essay on pictures")
@example(b"%PDF-1.7")
@example(b"\r\n")
@example(b"\xef\xbb\xbfa")
def test_any_bytes_are_text_or_not(data: bytes) -> None:
    """UTF-8 without zero bytes is text, unless it begins as a kind of binary file does, and is read as it is."""
    encoding = encoding_of(data)
    try:
        is_text = "\0" not in data.decode() and not kind_of_binary(data)
    except UnicodeDecodeError:
        is_text = False
    assert encoding or not is_text
    if encoding:
        text, _ = unified(data, encoding)
        if is_text:
            assert text == data.removeprefix(codecs.BOM_UTF8)
        codecs.getincrementaldecoder("utf-8")().decode(text)  # a piece may end within a character


# --- file-write


async def test_files_are_made_replaced_and_added_to(top: Path, tools: Tools) -> None:
    said = (await tools.say("file-write", path="a.txt", content="é\n"))[0]
    digest = sha256("é\n".encode()).hexdigest()[:16]
    assert said == f"Created 'a.txt': now 3 bytes, sha256 {digest}."
    told = await tools.fail("file-write", path="a.txt", content="x")
    assert "exists already; nothing was written. mode=overwrite" in told
    assert (top / "a.txt").read_text() == "é\n"
    assert (await tools.say("file-write", path="a.txt", content="b\n", mode="append"))[0].startswith(
        "Appended to 'a.txt'"
    )
    assert (top / "a.txt").read_text() == "é\nb\n"
    assert (await tools.say("file-write", path="a.txt", content="c", mode="overwrite"))[0].startswith(
        "Replaced 'a.txt'"
    )
    assert (top / "a.txt").read_text() == "c"
    assert (await tools.say("file-write", path="n.txt", content="n", mode="append"))[0].startswith("Created 'n.txt'")
    assert "create_parents makes its directory" in await tools.fail("file-write", path="x/y/z", content="1")
    await tools.say("file-write", path="x/y/z", content="1", create_parents=True)
    assert (top / "x/y/z").read_text() == "1"
    assert "'x': it is a directory" in await tools.fail("file-write", path="x", content="1", mode="overwrite")
    for wrong in ({}, {"content": "x", "edits": []}, {"content": "x", "path": "dir/"}):
        with pytest.raises(ArgumentsRefused):
            await tools.run("file-write", **{"path": "w", **wrong})


async def test_a_file_that_was_changed_since_it_was_read_is_not_overwritten(top: Path, tools: Tools) -> None:
    fill(top, a_txt="one")
    note = (await tools.say("file-read", path="a.txt"))[1]
    digest = note.rpartition("sha256 ")[2].rstrip("]")
    fill(top, a_txt="two")
    for change in (
        {"content": "x", "mode": "overwrite"},
        {"content": "x", "mode": "append"},
        {"edits": [{"old": "t", "new": "x"}]},
    ):
        told = await tools.fail("file-write", path="a.txt", sha256=digest, **change)
        assert told.startswith("The file was changed since: its sha256 is ")
    assert (top / "a.txt").read_text() == "two"
    now = told.partition("its sha256 is ")[2].partition(".")[0]
    await tools.say("file-write", path="a.txt", sha256=now.upper(), content="three", mode="overwrite")
    assert (top / "a.txt").read_text() == "three"
    (top / "a.txt").unlink()
    assert "no longer exists" in await tools.fail("file-write", path="a.txt", sha256=now, content="x", mode="overwrite")


async def test_pieces_are_replaced_and_encoding_and_line_ends_stay(top: Path, tools: Tools) -> None:
    fill(
        top,
        a_py="def f():\n    return 1\n\ndef g():\n    return 1\n",
        w="ö\r\nb\r\n".encode("utf-16"),
        bom=b"\xef\xbb\xbfa\n",
    )
    fill(top, c="h\u00f6he\r\n".encode("cp1252"), bin=b"\x00a")

    async def edit(path: str, *edits: tuple[str, str]) -> str:
        changes = [{"old": old, "new": new} for old, new in edits]
        result = await tools.run("file-write", path=path, edits=changes)
        return result["content"][0]["text"]

    assert "occurs in 2 places (lines 2, 5)" in await edit("a.py", ("    return 1", "x"))
    assert "with other spaces" in await edit("a.py", ("def f():\n  return 1", "x"))
    assert "in other case" in await edit("a.py", ("DEF F", "x"))
    assert "read it again" in await edit("a.py", ("def h", "x"))
    assert "Edit 2: 'nowhere'" in await edit("a.py", ("def f", "def h"), ("nowhere", ""))
    assert (top / "a.py").read_text().startswith("def f")  # none was made
    assert (await edit("a.py", ("def f", "def h"), ("g():\n    return 1", "g():\n    return 2"))).startswith(
        "Made 2 edits"
    )
    assert (top / "a.py").read_text() == "def h():\n    return 1\n\ndef g():\n    return 2\n"
    await tools.say("file-write", path="a.py", edits=[{"old": "return", "new": "yield", "all": True}])
    assert (top / "a.py").read_text().count("yield") == 2
    await edit("w", ("ö\nb", "x\ny"))
    assert (top / "w").read_bytes() == "x\r\ny\r\n".encode("utf-16")
    await tools.say("file-write", path="w", content="z\n", mode="append")
    assert (top / "w").read_bytes() == "x\r\ny\r\nz\r\n".encode("utf-16")
    await edit("bom", ("a", "b"))
    assert (top / "bom").read_bytes() == b"\xef\xbb\xbfb\n"
    await edit("c", ("höhe", "ähre"))
    assert (top / "c").read_bytes() == "ähre\r\n".encode("cp1252")
    assert "U+7A7A cannot be written as cp1252" in await edit("c", ("ähre", "空"))
    assert "It is a binary file" in await edit("bin", ("a", "b"))
    assert "`old` and `new` are the same" in await edit("c", ("a", "a"))
    with pytest.raises(Unfit, match="`old` is empty"):
        edited("x", [Edit("", "y")])
    fill(top, odd=b"\x81\x8d")
    assert "in no encoding that is known here" in await edit("odd", ("a", "b"))
    assert "is not there" in await edit("none", ("a", "b"))


@given(
    st.text(alphabet="ab\n", max_size=40),
    st.text(alphabet="ab\n", min_size=1, max_size=4),
    st.text("abc\n", max_size=4),
)
def test_an_edit_changes_one_place_or_nothing(text: str, old: str, new: str) -> None:
    try:
        made = edited(text, [Edit(old, new)])
    except Unfit:
        assert text.count(old) != 1 or old == new
    else:
        assert made == text.replace(old, new)
    crlf = text.replace("\n", "\r\n")
    try:
        assert "\n" not in edited(crlf, [Edit(old, new)]).replace("\r\n", "") or "\r\n" not in crlf
    except Unfit:
        pass


async def test_protected_large_and_odd_writes_are_refused(top: Path) -> None:
    (top / "servers.toml").write_text("mine")
    tools = Tools([str(top)], sealed=[top / "servers.toml"], max_write=100, protected=["*.lock"], deny=["private"])
    fill(top, uv_lock="x", private__a="y", big="z" * 200)
    for path in (".git/hooks/pre-commit", ".mcp.json", "servers.toml", "uv.lock", "private/a", "private/b", ".bashrc"):
        with pytest.raises(PathRefused):
            await tools.run("file-write", path=path, content="x", mode="overwrite", create_parents=True)
    for path in ("servers.toml", "private/a"):
        with pytest.raises(PathRefused):
            await tools.run("file-read", path=path)
    assert (await tools.say("file-read", path="uv.lock"))[0] == "x"
    assert "It would have 101 bytes; files of up to 100 B" in await tools.fail(
        "file-write", path="n", content="x" * 101
    )
    assert "It has 200 bytes" in await tools.fail("file-write", path="big", content="x", mode="append")
    await tools.say("file-write", path="big", content="x", mode="overwrite")
    assert sorted(path.name for path in top.iterdir()) == ["big", "private", "servers.toml", "uv.lock"]
    assert not any("servers" in text or "private" in text for text in await tools.say("file-list", depth=3))
    assert "[0 lines in 0 files" in (await tools.say("file-search", pattern="mine"))[0]


async def test_appends_at_the_same_time_are_all_kept(top: Path, tools: Tools) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(
                lambda number=number: tools.say("file-write", path="log", content=f"{number}\n", mode="append")
            )
    assert sorted(map(int, (top / "log").read_text().split())) == list(range(30))


async def test_a_write_that_is_cancelled_before_its_end_writes_nothing(
    top: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, cancelled, ended = threading.Event(), threading.Event(), threading.Event()
    really = Stop.look

    def look(self: Stop) -> None:
        reached.set()
        cancelled.wait(30)
        try:
            really(self)
        finally:
            ended.set()

    monkeypatch.setattr(Stop, "look", look)
    with fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: tools.run("file-write", path="new", content="x"))
            await anyio.to_thread.run_sync(reached.wait, 30)
            tasks.cancel_scope.cancel()
        cancelled.set()
        await anyio.to_thread.run_sync(ended.wait, 30)
        monkeypatch.undo()
        await tools.run("file-write", path="other", content="x")  # after the first has let go
    assert [path.name for path in top.iterdir()] == ["other"]


# --- file-list


async def test_a_directory_is_listed(top: Path, tools: Tools) -> None:
    fill(top, b__c_txt="12345", a_txt="1", b__d__e_py="x", _hidden="h", _git__config="x")
    (top / "link").symlink_to("/etc/passwd")
    os.mkfifo(top / "pipe")
    os.utime(top / "a.txt", (0, 86400))
    said, note = await tools.say("file-list")
    assert said.splitlines() == [
        *("a.txt  1  1970-01-02 00:00", "b/", "link -> /etc/passwd", "pipe  (a pipe)", ".git/"),
        said.splitlines()[-1],
    ]
    assert said.splitlines()[-1].startswith(".hidden  1  ")
    assert note == "[6 entries]"
    names = [line.split("  ")[0] for line in (await tools.say("file-list", depth=9, hidden=False))[0].splitlines()]
    assert names == ["a.txt", "b/", "b/c.txt", "b/d/", "b/d/e.py", "link -> /etc/passwd", "pipe"]
    said, note = await tools.say("file-list", depth=9, glob="**/*.{py,txt}", limit=2)
    assert [line.split("  ")[0] for line in said.splitlines()] == ["a.txt", "b/c.txt"]
    assert note == "[3 entries; 1 of them not shown: raise limit, or give a glob or a deeper path]"
    assert [line.split("  ")[0] for line in (await tools.say("file-list", path="b"))[0].splitlines()] == [
        "b/c.txt",
        "b/d/",
    ]
    assert await tools.say("file-list", path="b/d", glob="*.txt") == ["[0 entries]"]
    assert "not a directory" in await tools.fail("file-list", path="a.txt")
    assert "no such file" in await tools.fail("file-list", path="none")
    with pytest.raises(PathRefused):
        await tools.run("file-list", path="link")
    with pytest.raises(ArgumentsRefused, match="glob: its braces"):
        await tools.run("file-list", glob="{a,b}" * 9)


async def test_a_directory_with_too_many_names_is_said(
    top: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpbridge.sandbox.files.paths.MOST_NAMES", 5)
    fill(top, a__b="x", **{f"full__{number}": "x" for number in range(6)})
    assert (await tools.say("file-list", depth=2))[0].splitlines()[-1] == "full/  (more than 5 names in one directory)"
    assert "'full': more than 5 names" in await tools.fail("file-list", path="full")
    assert "1 not looked into" in (await tools.say("file-search", pattern="x", glob="b"))[-1]


async def test_names_that_are_no_text_are_shown_on_their_line(top: Path, tools: Tools) -> None:
    (top / "a\nb\u202e").write_text("x")
    os.close(os.open(os.fsencode(top) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    said = (await tools.say("file-list"))[0].splitlines()
    assert [line.split("  ")[0] for line in said] == ["a\\x0ab\\u202e", "\\xff"]


# --- file-search


async def test_lines_are_found_in_files(top: Path, tools: Tools) -> None:
    fill(
        top,
        a_py="import os\n\ndef walk():\n    pass\n",
        b__c_txt="Walk\r\nto walk\r\n",
        d_bin=b"walk\x00",
        _git__x="walk",
    )
    fill(top, u_txt="ein walk\n".encode("utf-16"), _env="walk", venv__x_js="walk")
    said, note = await tools.say("file-search", pattern="walk")
    assert said.splitlines() == [
        *("a.py", "3: def walk():", "b/c.txt", "2: to walk", "u.txt", "1: ein walk", "venv/x.js", "1: walk")
    ]
    assert note == "[4 lines in 4 files; 4 files looked at; 1 binary; 1 not to be read]"
    said = (await tools.say("file-search", pattern="walk", ignore_case=True, glob="*.txt"))[0]
    assert said.splitlines() == ["b/c.txt", "1: Walk", "2: to walk", "u.txt", "1: ein walk"]
    said = (await tools.say("file-search", pattern=r"^(def|to) \w+$", regex=True))[0]
    assert said.splitlines() == ["b/c.txt", "2: to walk"]
    said = (await tools.say("file-search", pattern="walk", path="a.py", context=5))[0]
    assert said.splitlines() == ["a.py", "1- import os", "2- ", "3: def walk():", "4-     pass"]
    said = (await tools.say("file-search", pattern="walk", exclude="{b,u.txt,venv}"))[0]
    assert said.splitlines() == ["a.py", "3: def walk():"]
    assert (await tools.say("file-search", pattern="(x"))[-1].startswith("[0 lines in 0 files")


async def test_files_are_found_by_name(top: Path, tools: Tools) -> None:
    fill(top, src__a_py="", src__x__b_py="", docs__a_md="", c_py="")
    assert await tools.say("file-search", glob="*.py") == ["c.py\nsrc/a.py\nsrc/x/b.py", "[3 names]"]
    assert await tools.say("file-search", glob="src/**/*.py") == ["src/a.py\nsrc/x/b.py", "[2 names]"]
    assert await tools.say("file-search", glob="**/*.py", path="src/x") == ["src/x/b.py", "[1 name]"]
    assert "a file, not a directory" in await tools.fail("file-search", glob="*", path="c.py")
    for wrong in ({}, {"pattern": "("}, {"pattern": r"(?=x)"}, {"pattern": "x" * 1001}):
        with pytest.raises(ArgumentsRefused):
            await tools.run("file-search", regex=True, **wrong)


async def test_what_is_not_shown_is_said(top: Path) -> None:
    tools = Tools([str(top)], max_file="2 KiB", max_entries=5, max_read="1 KiB")
    fill(top, a="x\n" * 9, b="x" * 3000, c="wide " * 300 + "needle" + " hay" * 100, d=("y" * 200 + "\n") * 9)
    said, note = await tools.say("file-search", pattern="x", limit=100)
    assert said.splitlines() == ["a", *(f"{number}: x" for number in range(1, 6))]
    assert "ended as the answer is full" in note
    said, note = await tools.say("file-search", pattern="needle")
    assert "1 larger than 2 KiB" in note
    line = said.splitlines()[1]
    assert len(line) < 320
    assert "needle" in line
    assert line.startswith("1: …")
    assert line.endswith("…")
    said, note = await tools.say("file-search", pattern="y", limit=9)
    assert len(said) <= 1024
    assert "ended as the answer is full" in note


async def test_a_search_that_takes_too_long_ends_with_what_it_has(
    top: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (top / name).write_text("x\n")
    looks = 0

    def look(self: Stop) -> None:
        nonlocal looks
        looks += 1
        if looks > 8:
            raise OutOfTime

    monkeypatch.setattr(Stop, "look", look)
    said, note = await tools.say("file-search", pattern="x")
    assert said.startswith("a\n1: x")
    assert "ended after 15 s, so there may be more" in note
    looks = 7
    assert "there are more: it was ended after 15 s" in (await tools.say("file-list"))[-1]


async def test_a_disk_that_does_not_answer_holds_nobody_up(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Tools([str(top)], timeout="10ms")
    monkeypatch.setattr(file_access, "_SLACK", 0.05)
    hanging = threading.Event()
    monkeypatch.setattr(Files, "find", lambda *_: hanging.wait(30) and None)
    try:
        assert "was given up: the disk is slow" in await tools.fail("file-read", path="a")
    finally:
        hanging.set()


def test_a_stopped_piece_of_work_hears_of_it() -> None:
    now = 0.0
    stop = Stop(5, clock=lambda: now)
    stop.look()
    now = 6.0
    with pytest.raises(OutOfTime):
        stop.look()
    stop.is_given_up = True
    with pytest.raises(file_access.GivenUp):
        stop.look()


@given(st.text(alphabet="ab\n", max_size=60), st.text(alphabet="ab", min_size=1, max_size=2), st.integers(0, 3))
def test_what_is_found_is_what_stands_there(text: str, pattern: str, context: int) -> None:
    data = text.encode()
    found = list(matching_lines(data, Matcher(pattern)))
    lines = text.split("\n")
    assert [one.number for one in found] == [number for number, line in enumerate(lines, 1) if pattern in line]
    assert found == list(matching_lines(data, Matcher(pattern, is_regex=True)))
    shown = [line for line in excerpts(data, found, context) if line != "--"]
    numbers = [int(line.partition(":" if ":" in line else "-")[0]) for line in shown]
    assert numbers == sorted(set(numbers))
    for line, number in zip(shown, numbers, strict=True):
        assert line[len(str(number)) + 2 :] == lines[number - 1]
        assert (line[len(str(number))] == ":") is (pattern in lines[number - 1])


def test_patterns_are_refused_that_cannot_be_looked_for() -> None:
    for pattern in ("a" * 1001, "\ud800"):
        with pytest.raises(WrongPattern):
            Matcher(pattern)
    for pattern in ("(", r"(a)\1", "x{5000}{5000}"):
        with pytest.raises(WrongPattern, match="RE2"):
            Matcher(pattern, is_regex=True)
    assert Matcher("A.", ignores_case=True).first(b"xxa.", 0) == (2, 4)
    assert Matcher("É", ignores_case=True).first("é".encode(), 0) == (0, 2)
