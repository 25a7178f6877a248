"""The chain of the audit log: what was done to its files is found, and what a bridge does itself is not (issue 22)."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.storage.audit.checkpoints import Anchor
from mcpbridge.storage.audit.segments import segments_in
from mcpbridge.storage.audit.settings import AuditSettings
from mcpbridge.storage.audit.verify import Report, verify
from mcpbridge.storage.audit.writer import Writer

NOW = 1_800_000_000.0
DAY = 86400.0


class Log:
    """A log in a folder of its own, with a clock that is set."""

    def __init__(self, root: Path, **keys: Any) -> None:
        self.folder, self.now = root / "log", NOW
        self.anchor = Anchor(root / "anchor", self.folder)
        self.settings = AuditSettings(sync=False, **keys)
        self.writer = self.another()

    def another(self) -> Writer:
        return Writer(self.folder, self.anchor, self.settings, lambda: self.now)

    def write(self, *numbers: int, writer: Writer | None = None, is_last: bool = False) -> None:
        entries = [(self.now, "call", {"tool": f"files/read{number}"}) for number in numbers]
        (writer or self.writer).append(entries, is_last=is_last)

    def restart(self) -> None:
        self.writer.close()
        self.writer = self.another()

    def verify(self, elsewhere: list[bytes] | None = None) -> Report:
        key = self.anchor.public_key()
        return verify(self.folder, self.anchor, [key] if key is not None else [], elsewhere or [])

    def found(self) -> list[tuple[str, int, int]]:
        return [(one.what, one.seq, one.through) for one in self.verify().findings]

    @property
    def files(self) -> list[Path]:
        return [segment.path for segment in segments_in(self.folder)]

    def lines(self) -> list[bytes]:
        return [line for file in self.files for line in file.read_bytes().splitlines(keepends=True)]

    def rewrite(self, edit: Callable[[list[bytes]], list[bytes]]) -> None:
        (file,) = self.files
        file.write_bytes(b"".join(edit(file.read_bytes().splitlines(keepends=True))))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    found = Log(tmp_path)
    yield found
    found.writer.close()


def test_a_log_that_nobody_touched_is_intact(log: Log) -> None:
    log.write(1, 2, 3)
    log.write(4, is_last=True)
    report = log.verify()
    assert report.is_intact
    assert (report.first, report.last, report.lines, report.signed_through) == (1, 5, 5, 5)
    fields = [msgspec.json.decode(line) for line in log.lines()]
    assert [one["kind"] for one in fields] == ["audit.segment", *["call"] * 4]
    assert [one["prev"] for one in fields[1:]] == [one["hash"] for one in fields[:-1]]


def test_files_and_keys_are_for_their_user_alone(log: Log) -> None:
    log.write(1, is_last=True)
    anchor = log.anchor
    for path in (*log.files, anchor.key_path, anchor.head_path, anchor.kept_path):
        assert path.stat().st_mode & 0o777 == 0o600, path
    assert log.folder.stat().st_mode & 0o777 == anchor.folder.stat().st_mode & 0o777 == 0o700


def test_two_bridges_write_one_chain(log: Log) -> None:
    other = log.another()
    for number in range(6):
        log.write(number, writer=other if number % 2 else log.writer)
    other.close()
    report = log.verify()
    assert report.is_intact
    assert report.lines == 7


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (lambda lines: [*lines[:3], lines[3].replace(b"read3", b"read9"), *lines[4:]], [("changed", 4, 4)]),
        (lambda lines: [*lines[:3], *lines[4:]], [("missing", 4, 4)]),
        (lambda lines: [*lines[:4], lines[3], *lines[4:]], [("added", 4, 4)]),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], [("missing", 3, 3), ("added", 3, 3)]),
        (lambda lines: lines[:-2], [("cut_off", 5, 6)]),
        (lambda lines: lines[2:], [("changed", 3, 3), ("missing", 1, 2)]),
        (lambda lines: [*lines[:3], b"{}\n", *lines[3:]], [("changed", 4, 4)]),
        (lambda lines: [], [("cut_off", 1, 6)]),
    ],
    ids=["a line changed", "one cut", "one twice", "two swapped", "the last cut", "the first cut", "added", "emptied"],
)
def test_what_was_done_to_lines_is_named(
    log: Log, edit: Callable[[list[bytes]], list[bytes]], found: list[tuple[str, int, int]]
) -> None:
    log.write(1, 2, 3, 4, 5, is_last=True)
    log.rewrite(edit)
    assert log.found() == found


def test_a_chain_that_is_written_anew_is_found(tmp_path: Path, log: Log) -> None:
    log.write(1, 2, 3, 4, is_last=True)
    forged = Log(tmp_path / "elsewhere")
    forged.write(1, 2, 3, 4, 5, is_last=True)
    forged.writer.close()
    shutil.rmtree(log.folder)
    shutil.copytree(forged.folder, log.folder)
    assert log.found() == [("rewritten", 5, 5)]


def test_a_removed_log_is_missed_also_after_the_bridge_went_on(log: Log) -> None:
    log.write(1, 2, 3, is_last=True)
    log.writer.close()
    shutil.rmtree(log.folder)
    assert log.found() == [("cut_off", 1, 4)]
    log.restart()
    log.write(4, is_last=True)
    assert log.found() == [("missing", 1, 4)]
    assert log.verify().last == 7  # a line for the file, one for what is missing, and the call


def test_lines_that_are_cut_off_before_a_restart_stay_missing(log: Log) -> None:
    log.write(1, 2, 3)
    log.rewrite(lambda lines: lines[:-2])
    log.restart()
    log.write(4)
    log.write(5, is_last=True)
    assert ("missing", 3, 4) in log.found()


def test_a_last_line_that_is_replaced_before_a_restart_is_found_afterwards(tmp_path: Path, log: Log) -> None:
    log.write(1, 2)
    forged = Log(tmp_path / "elsewhere")
    forged.write(1, 9)
    forged.writer.close()
    log.files[0].write_bytes(forged.files[0].read_bytes())
    log.restart()
    log.write(3, is_last=True)
    assert ("rewritten", 3, 3) in log.found()


def test_without_checkpoints_nothing_is_proved(log: Log) -> None:
    log.write(1, is_last=True)
    log.anchor.head_path.unlink()
    log.anchor.kept_path.unlink()
    assert log.found() == [("unproven", 0, 0)]


def test_a_checkpoint_of_another_machine_finds_what_was_cut_here(log: Log) -> None:
    log.write(1, 2)
    log.writer.append([], is_last=True)
    (held,) = log.anchor.all_lines()
    head = log.anchor.head()
    log.write(3, is_last=True)
    log.rewrite(lambda lines: lines[:-2])
    log.anchor.kept_path.unlink()
    assert head is not None
    log.anchor.head_path.unlink()
    assert [one.what for one in log.verify([held]).findings] == ["cut_off"]


def test_checkpoints_of_another_key_do_not_count(tmp_path: Path, log: Log) -> None:
    log.write(1, is_last=True)
    other = Anchor(tmp_path / "other", log.folder)
    report = verify(log.folder, log.anchor, [other.private_key().public_key()])
    assert {one.what for one in report.findings} == {"checkpoint", "unproven"}


def test_a_half_written_line_is_marked_and_the_chain_goes_on(log: Log) -> None:
    log.write(1, 2)
    (file,) = log.files
    with file.open("ab") as end:
        end.write(b'{"seq":4,"prev":"00')
    report = log.verify()
    assert report.is_intact
    assert "half a line" in report.notes[0]
    log.restart()
    log.write(3, is_last=True)
    report = log.verify()
    assert report.is_intact
    assert report.notes == ["line 4: the bridge was killed while it wrote the line before"]
    file.write_bytes(file.read_bytes().replace(b'{"seq":4,"prev":"00\n', b'{"seq":4,"prev":"01\n'))
    assert log.found() == [("changed", 4, 4)]


def test_each_day_and_each_size_begins_a_file(tmp_path: Path) -> None:
    log = Log(tmp_path, segment_size=4096)
    log.write(1)
    log.now += DAY
    log.write(2)
    assert [file.name for file in log.files] == ["000000000001.jsonl", "000000000003.jsonl"]
    for number in range(60):
        log.write(number)
    assert len(log.files) > 3
    log.writer.close()
    assert log.verify().is_intact
    log.files[1].unlink()
    assert log.found()[0][0] == "missing"


def test_what_is_too_old_goes_at_a_checkpoint_and_what_else_is_removed_is_found(tmp_path: Path) -> None:
    log = Log(tmp_path, keep=3 * DAY)
    for number in range(6):
        log.write(number)
        log.now += DAY
    assert len(log.files) == 5
    report = log.verify()
    assert report.is_intact
    assert report.first == 3
    log.writer.close()
    log.files[0].unlink()
    assert log.found() == [("missing", 3, 4)]
    log.restart()
    log.write(7)
    assert ("missing", 3, 4) in log.found()
    log.writer.close()


def test_what_is_too_much_goes_the_oldest_first(tmp_path: Path) -> None:
    log = Log(tmp_path, segment_size=4096, max_size=16384)
    for number in range(300):
        log.write(number)
    log.writer.close()
    assert sum(file.stat().st_size for file in log.files) < 4 * 4096 + 8192
    report = log.verify()
    assert report.is_intact
    assert report.first > 100


def test_a_disk_that_is_full_leaves_no_part_of_a_line(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    log.write(1)
    write = os.write

    def half(file: int, data: bytes) -> int:
        if len(data) > 100:
            return write(file, bytes(data)[:50])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("mcpbridge.storage.audit.writer.os.write", half)
        with pytest.raises(OSError, match="No space"):
            log.write(2)
    log.write(2, is_last=True)
    report = log.verify()
    assert report.is_intact
    assert report.lines == 3


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int], Log]:
    """A closed log of so many days, with so many calls each; made once, and each example puts back what it changed."""
    known: dict[tuple[int, int], Log] = {}

    def log_of(days: int, a_day: int) -> Log:
        if (days, a_day) not in known:
            log = known[days, a_day] = Log(tmp_path_factory.mktemp("log"))
            for _ in range(days):
                log.write(*range(a_day))
                log.now += DAY
            log.writer.append([], is_last=True)
            log.writer.close()
        return known[days, a_day]

    return log_of


@contextmanager
def holding(path: Path, content: bytes) -> Iterator[None]:
    """The file has this content meanwhile."""
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


@settings(max_examples=300, deadline=None)
@given(place=st.integers(0), value=st.integers(1, 255), shape=st.sampled_from([(1, 5), (3, 2), (8, 1)]))
def test_every_changed_byte_is_found(
    logs: Callable[[int, int], Log], place: int, value: int, shape: tuple[int, int]
) -> None:
    log = logs(*shape)
    at = place % sum(file.stat().st_size for file in log.files)
    for file in log.files:
        content = bytearray(file.read_bytes())
        if at < len(content):
            content[at] ^= value
            with holding(file, bytes(content)):
                assert not log.verify().is_intact
            break
        at -= len(content)
    assert log.verify().is_intact


@settings(max_examples=150, deadline=None)
@given(data=st.data(), shape=st.sampled_from([(1, 6), (4, 2)]))
def test_every_other_order_or_number_of_lines_is_found(
    logs: Callable[[int, int], Log], data: st.DataObject, shape: tuple[int, int]
) -> None:
    """Lines deleted, duplicated, moved or cut, and files shortened anywhere."""
    log = logs(*shape)
    file = data.draw(st.sampled_from(log.files))
    before = file.read_bytes()
    lines = before.splitlines(keepends=True)
    if data.draw(st.booleans()):
        after = before[: data.draw(st.integers(0, len(before) - 1))]
    else:
        after = b"".join(data.draw(st.lists(st.sampled_from(lines), max_size=len(lines) + 2)))
    with holding(file, after):
        assert log.verify().is_intact == (after == before)


@settings(max_examples=100, deadline=None)
@given(place=st.integers(0), value=st.integers(1, 255), is_head=st.booleans())
def test_every_changed_byte_of_a_checkpoint_is_found(
    logs: Callable[[int, int], Log], place: int, value: int, is_head: bool
) -> None:
    log = logs(2, 2)
    path = log.anchor.head_path if is_head else log.anchor.kept_path
    content = bytearray(path.read_bytes())
    at = place % (len(content) - 1)  # what ends the last line is not signed, and says nothing
    content[at] ^= value
    with holding(path, bytes(content)):
        assert not log.verify().is_intact
