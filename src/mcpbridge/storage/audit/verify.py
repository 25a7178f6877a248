"""Finds what was done to an audit log: lines that were changed, cut, added, swapped, or written anew.

The chain shows what was changed between its ends. What shows that the ends are the true ones are the checkpoints: the
newest, those that were kept, and those that another machine holds. Reads each file once, and changes nothing.
"""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct

from mcpbridge.storage.audit.checkpoints import Anchor, Checkpoint, is_signed, key_id, read_checkpoint
from mcpbridge.storage.audit.lines import NOTHING, RECOVERED, fields_of, read_line
from mcpbridge.storage.audit.segments import LOCK, Segment, lines_in, segments_in
from mcpbridge.storage.file_locks import locked

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

Tampering = Literal["changed", "missing", "added", "cut_off", "rewritten", "checkpoint", "unproven"]
"""`changed`: a line is not as it was written; `missing`: lines are gone; `added`: a line is there twice, or does not
belong here; `cut_off`: the last lines are gone; `rewritten`: a line is not the one that was signed; `checkpoint`: one
is not as it was signed; `unproven`: there is no checkpoint to compare with."""

MOST_FINDINGS = 1000
"""Further ones are counted only."""


class Finding(Struct, frozen=True):
    """One thing that is not as it was written."""

    what: Tampering
    detail: str
    seq: int = 0
    """The first line that it is about; 0: it is about none."""
    through: int = 0
    """The last one."""
    file: str = ""
    line: int = 0
    """Of the file, counted from 1."""


class Report(Struct):
    """What was looked at, and what was found."""

    findings: list[Finding]
    more_findings: int = 0
    notes: list[str] = []
    """What is not tampering: a bridge that was killed, entries that were lost."""
    files: int = 0
    lines: int = 0
    first: int = 0
    last: int = 0
    checkpoints: int = 0
    """Those whose signature is right."""
    signed_through: int = 0
    """The last line that a checkpoint speaks for."""
    signed_at: str = ""

    @property
    def is_intact(self) -> bool:
        """Nothing was found."""
        return not self.findings

    def add(self, finding: Finding) -> None:
        """One more."""
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)
        else:
            self.more_findings += 1


def verify(folder: Path, anchor: Anchor, keys: Sequence["Ed25519PublicKey"], elsewhere: Sequence[bytes] = ()) -> Report:
    """Look at a log. `keys`: whose checkpoints count; `elsewhere`: checkpoints that another machine has kept.

    Raises:
        OSError: something cannot be read.
    """
    report = Report([])
    if not folder.is_dir():
        segments, lines = list[tuple[Segment, int]](), _checkpoint_lines(anchor)
    else:
        # A bridge may be writing: what is looked at is what there is now.
        with locked(folder / LOCK):
            segments = [(one, one.size) for one in segments_in(folder)]
            lines = _checkpoint_lines(anchor)
    points = _checkpoints([*lines, *elsewhere], keys, report)
    chain = _Chain(report, {point.seq for point in points})
    for segment, size in segments:
        chain.read(segment, size)
    chain.end()
    _compare(chain, points, report)
    return report


def _checkpoint_lines(anchor: Anchor) -> list[bytes]:
    head = anchor.head()
    return [*anchor.all_lines(), *([head] if head is not None else [])]


def _checkpoints(lines: Sequence[bytes], keys: Sequence["Ed25519PublicKey"], report: Report) -> list[Checkpoint]:
    """Those that one of the keys has signed, in the order of their lines."""
    by_id = {key_id(key): key for key in keys}
    good: list[Checkpoint] = []
    for number, line in enumerate(lines, 1):
        found = read_checkpoint(line)
        if found is None:
            report.add(Finding("checkpoint", f"checkpoint {number} is none: it was changed, or half written"))
            continue
        point = found.checkpoint
        key = by_id.get(point.key)
        if key is None:
            detail = f"the checkpoint of line {point.seq} is signed by another key: {point.key}"
            report.add(Finding("checkpoint", detail, point.seq))
        elif not is_signed(found, key):
            report.add(
                Finding("checkpoint", f"the signature of the checkpoint of line {point.seq} is wrong", point.seq)
            )
        else:
            good.append(point)
    return sorted(good, key=lambda point: point.seq)


class _Chain:
    """Follows the lines of all files."""

    def __init__(self, report: Report, wanted: set[int]) -> None:
        """`wanted`: lines whose hash is to be remembered."""
        self.hashes: dict[int, str] = {}
        self._report, self._wanted = report, wanted
        self._seq, self._hash = 0, ""
        """The last line that was read, 0: there was none; and its hash, empty: it was changed."""
        self._torn: tuple[bytes, Segment, int] | None = None
        """A line that has no form, until the next line says whether the bridge was killed there."""

    def read(self, segment: Segment, size: int) -> None:
        """One file, up to this size."""
        self._report.files += 1
        is_first, number = True, 0
        for number, raw in enumerate(lines_in(segment.path, size), 1):
            line = read_line(raw)
            if line is None:
                self._no_line()
                self._torn = raw, segment, number
                continue
            torn, self._torn = self._torn, None
            where: dict[str, Any] = {"seq": line.seq, "through": line.seq, "file": segment.path.name, "line": number}
            if torn is not None:
                self._judge_torn(*torn, raw)
            if is_first and line.seq != segment.first:
                detail = f"the file begins with line {line.seq}, and not with the one in its name"
                self._report.add(Finding("changed", detail, **where))
            is_first = False
            if not line.is_intact:
                self._report.add(Finding("changed", f"line {line.seq} was changed", **where))
                if self._seq and line.seq != self._seq + 1:
                    continue  # its number is what was changed
            self._follow(line.seq, line.prev, line.hash if line.is_intact else "", where, raw)
        if not number:
            self._report.notes.append(f"{segment.path.name} is empty: the bridge was killed before its first line")

    def _follow(self, seq: int, prev: str, own: str, where: dict[str, Any], raw: bytes) -> None:
        report = self._report
        if not self._seq:
            report.first = seq
            if seq == 1 and prev != NOTHING:
                report.add(Finding("changed", "the first line says that another was before it", **where))
        elif seq <= self._seq:
            report.add(Finding("added", f"line {seq} comes after line {self._seq}", **where))
            return
        elif seq > self._seq + 1:
            gap: dict[str, Any] = {**where, "seq": self._seq + 1, "through": seq - 1}
            report.add(Finding("missing", f"{_lines(self._seq + 1, seq - 1)} missing", **gap))
        elif self._hash and prev != self._hash:
            detail = f"line {self._seq} is not the one that line {seq} was written after"
            before: dict[str, Any] = {**where, "seq": self._seq, "through": self._seq}
            report.add(Finding("changed", detail, **before))
        self._seq, self._hash = seq, own
        report.lines += 1
        report.last = seq
        if seq in self._wanted and own:
            self.hashes[seq] = own
        if b'"kind":"audit.' in raw:
            self._note(fields_of(raw))

    def _note(self, fields: dict[str, Any]) -> None:
        kind = fields.get("kind")
        if kind == "audit.lost":
            self._report.notes.append(f"line {fields['seq']}: {fields.get('count')} entries could not be written")
        elif kind == RECOVERED and "torn" in fields:
            self._report.notes.append(f"line {fields['seq']}: the bridge was killed while it wrote the line before")

    def _judge_torn(self, raw: bytes, segment: Segment, number: int, after: bytes) -> None:
        """What has no form of a line is half a line if the line after it says so, with its digest."""
        data = raw.removesuffix(b"\n")
        fields = fields_of(after)
        stated = cast("object", fields.get("torn")) if fields.get("kind") == RECOVERED else None
        if stated == {"bytes": len(data), "sha256": sha256(data).hexdigest()}:
            return
        self._torn = raw, segment, number
        self._no_line()

    def _no_line(self) -> None:
        if self._torn is not None:
            _, segment, number = self._torn
            detail = f"what follows line {self._seq} has not the form of a line"
            self._report.add(Finding("changed", detail, self._seq + 1, self._seq + 1, segment.path.name, number))
            self._torn = None

    def end(self) -> None:
        """There are no more files."""
        if self._torn is not None and not self._torn[0].endswith(b"\n"):
            self._report.notes.append("the log ends with half a line: the bridge was killed while it wrote that")
            self._torn = None
        self._no_line()


def _compare(chain: _Chain, points: Sequence[Checkpoint], report: Report) -> None:
    """The ends, and each signed line."""
    if not points:
        if report.lines:
            report.add(Finding("unproven", "no checkpoint says what the lines were: they may all be written anew"))
        return
    newest = points[-1]
    first = max(point.first for point in points)
    report.checkpoints, report.signed_through, report.signed_at = len(points), newest.seq, newest.at
    if newest.seq > report.last:
        from_ = max(report.last + 1, first)
        report.add(Finding("cut_off", f"{_lines(from_, newest.seq)} missing at the end", from_, newest.seq))
    if report.lines and report.first > first:
        detail = f"{_lines(first, report.first - 1)} missing at the beginning"
        report.add(Finding("missing", detail, first, report.first - 1))
    wrong = {point.seq: point for point in points if chain.hashes.get(point.seq, point.hash) != point.hash}
    for seq, point in wrong.items():
        report.add(Finding("rewritten", f"line {seq} is not the one that was signed at {point.at}", seq, seq))


def _lines(first: int, last: int) -> str:
    return f"line {first} is" if first == last else f"lines {first} to {last} are"
