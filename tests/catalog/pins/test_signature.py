"""A lock that is signed: which one may be used, and which never (issue 22, Supply chain)."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.pins.definition import Pin
from mcpbridge.catalog.pins.lock_file import lock_of, read_lock, write_lock
from mcpbridge.catalog.pins.signature import read_signature, sign_lock, why_not_signed
from mcpbridge.catalog.pins.trusted_lock import (
    forget_seen,
    lock_is_trusted,
    must_be_signed,
    seen_project,
    signature_fault,
    signature_path,
)
from mcpbridge.engine.pins.lock_watch import LockWatch

KEY = Ed25519PrivateKey.generate()
DATA = b"format = 1\n"


class Team:
    """A project with a lock, and the directories of one user."""

    def __init__(self, root: Path) -> None:
        self.environ = {"XDG_CONFIG_HOME": str(root / "config"), "XDG_STATE_HOME": str(root / "state")}
        self.lock = root / "project" / "servers.lock"
        self.lock.parent.mkdir(parents=True)
        self.keys = root / "config" / "mcpbridge" / "lock-keys"
        self.write("one")

    def write(self, name: str) -> None:
        write_lock(self.lock, lock_of({name: [Pin("tools", "echo", b'{"name":"echo"}')]}))

    def trust(self, key: Ed25519PrivateKey = KEY) -> None:
        self.keys.mkdir(parents=True, exist_ok=True)
        pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (self.keys / "team.pub").write_bytes(pem)

    def sign(self, serial: int, key: Ed25519PrivateKey = KEY, project: str = "") -> None:
        signature_path(self.lock).write_bytes(sign_lock(self.lock.read_bytes(), serial, key, project))

    def why(self) -> str:
        return lock_is_trusted(self.lock, environ=self.environ)


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(tmp_path)


def test_where_no_key_is_trusted_nothing_must_be_signed(team: Team) -> None:
    assert not must_be_signed(team.environ)
    assert team.why() == ""


def test_a_lock_that_a_trusted_key_has_signed_may_be_used(team: Team) -> None:
    team.trust()
    team.sign(1)
    assert team.why() == ""
    team.lock.write_bytes(team.lock.read_bytes().replace(b"\n", b"\r\n"))
    assert team.why() == "", "version control may change line ends"


def _unsigned(team: Team) -> None:
    signature_path(team.lock).unlink()


def _changed(team: Team) -> None:
    team.write("two")


def _signed_by_another(team: Team) -> None:
    team.sign(5, Ed25519PrivateKey.generate())


def _no_signature(team: Team) -> None:
    signature_path(team.lock).write_text("{}")


def _signed_for_something_else(team: Team) -> None:
    line = sign_lock(b"another lock", 5, KEY)
    signature_path(team.lock).write_bytes(line)


def _moved(team: Team) -> None:
    """The signature of another key under the id of the trusted one."""
    own, other = sign_lock(team.lock.read_bytes(), 5, KEY), sign_lock(team.lock.read_bytes(), 5, OTHER)
    signature_path(team.lock).write_bytes(own.partition(b',"sig"')[0] + b"".join(other.partition(b',"sig"')[1:]))


def _keys_of_others(team: Team) -> None:
    (team.keys / "team.pub").chmod(0o666)


def _broken_key(team: Team) -> None:
    (team.keys / "more.pub").write_text("nonsense")


OTHER = Ed25519PrivateKey.generate()


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        (_unsigned, "is not signed"),
        (_changed, "was changed after it was signed"),
        (_signed_by_another, "which is not trusted here"),
        (_no_signature, "no signature"),
        (_signed_for_something_else, "was changed after it was signed"),
        (_moved, "wrong signature"),
        (_keys_of_others, "cannot be verified"),
        (_broken_key, "cannot be verified"),
    ],
)
def test_another_lock_agrees_to_nothing(team: Team, attack: Callable[[Team], None], why: str) -> None:
    team.trust()
    team.sign(1)
    attack(team)
    assert why in team.why()


def test_an_older_lock_is_refused_however_well_it_is_signed(team: Team) -> None:
    team.trust()
    team.sign(1)
    old = team.lock.read_bytes(), signature_path(team.lock).read_bytes()
    team.write("two")
    team.sign(2)
    assert team.why() == ""
    team.lock.write_bytes(old[0])
    signature_path(team.lock).write_bytes(old[1])
    assert "is older" in team.why()
    forget_seen(team.lock, team.environ)
    assert team.why() == ""
    team.write("three")
    team.sign(1)
    assert "is older" in team.why(), "the same serial for another lock"


def test_the_lock_of_another_project_is_refused_where_one_was_seen(team: Team) -> None:
    """A key signs for several projects; a lock that was moved from one to another agrees to nothing there."""
    team.trust()
    team.sign(1)
    assert team.why() == "", "signatures of earlier versions name no project"
    team.sign(2, project="shop")
    assert team.why() == ""
    assert seen_project(team.lock, team.environ) == "shop"
    for serial, project, of in ((3, "bank", "project bank"), (4, "", "no project")):
        team.sign(serial, project=project)
        assert team.why().startswith(f"is signed for {of}, and that of project shop was seen here before")
    team.sign(3, project="shop")
    assert team.why() == "", "what was refused was not noted as seen"
    team.sign(4, project="bank")
    forget_seen(team.lock, team.environ)
    assert team.why() == ""


def test_what_an_earlier_version_has_seen_still_counts(team: Team) -> None:
    team.trust()
    team.sign(5)
    assert team.why() == ""
    file = Path(team.environ["XDG_STATE_HOME"]) / "mcpbridge" / "lock-serials.json"
    file.write_text(json.dumps({name: one[:2] for name, one in json.loads(file.read_bytes()).items()}))
    assert team.why() == ""
    team.sign(4, project="shop")
    assert "is older" in team.why()


def test_what_was_seen_cannot_be_made_unreadable(team: Team) -> None:
    team.trust()
    team.sign(1)
    assert team.why() == ""
    (Path(team.environ["XDG_STATE_HOME"]) / "mcpbridge" / "lock-serials.json").write_text("[]")
    assert "cannot be compared" in team.why()


@given(place=st.integers(0), value=st.integers(1, 255))
def test_a_signature_with_any_other_byte_is_none(place: int, value: int) -> None:
    line = bytearray(sign_lock(DATA, 7, KEY).strip())
    line[place % len(line)] ^= value
    assert why_not_signed(DATA, bytes(line), [KEY.public_key()])


def test_a_signature_is_spelled_in_one_way() -> None:
    """The last letter of it has four bits that decoders do not look at."""
    line = sign_lock(DATA, 7, KEY).strip()
    assert line.endswith(b'=="}')
    for last in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/":
        other = line[:-5] + bytes([last]) + line[-4:]
        assert other == line or why_not_signed(DATA, other, [KEY.public_key()])


def test_a_signature_says_its_serial() -> None:
    found = read_signature(sign_lock(DATA, 7, KEY))
    assert found is not None
    assert found.serial == 7
    assert not why_not_signed(DATA, sign_lock(DATA, 7, KEY), [KEY.public_key()])


def test_a_lock_that_does_not_exist_is_no_lock_without_a_signature(team: Team) -> None:
    team.trust()
    team.sign(1)
    team.lock.unlink()
    assert "does not exist, and keys are trusted in" in team.why()


def test_where_no_key_is_trusted_a_signature_must_still_be_of_this_lock(team: Team) -> None:
    assert signature_fault(team.lock, team.environ) == ""
    team.sign(1)
    assert signature_fault(team.lock, team.environ) == ""
    team.write("two")
    assert signature_fault(team.lock, team.environ) == "was changed after it was signed"
    _no_signature(team)
    assert "no signature" in signature_fault(team.lock, team.environ)


def test_a_broken_lock_that_is_removed_is_no_fault_any_more(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in team.environ.items():
        monkeypatch.setenv(name, value)
    team.lock.write_text("broken")
    watch = LockWatch()
    watch.follow(str(team.lock.with_name("servers.toml")))
    assert not watch.lock().entries
    assert watch.fault
    team.lock.unlink()
    assert watch.look()
    assert (watch.exists, watch.fault) == (False, "")


def test_a_running_bridge_uses_the_last_lock_that_was_signed(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """`lock approve` alone changes nothing then: `lock sign` does."""
    for name, value in team.environ.items():
        monkeypatch.setenv(name, value)
    team.trust()
    watch = LockWatch()
    watch.follow(str(team.lock.with_name("servers.toml")))
    assert watch.exists
    assert not watch.lock().entries
    assert "is not signed" in watch.fault
    team.sign(1)
    assert watch.look()
    assert watch.lock() == read_lock(team.lock)
    assert not watch.fault
    team.write("two")
    assert watch.look()
    assert watch.lock().servers == {"one"}
    assert "was changed" in watch.fault
    team.sign(2)
    assert watch.look()
    assert watch.lock().servers == {"two"}
    assert not watch.look()


def test_a_lock_that_was_removed_is_missed(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever removes it would have everything listed with a warning."""
    for name, value in team.environ.items():
        monkeypatch.setenv(name, value)
    team.trust()
    team.lock.unlink()
    watch = LockWatch()
    watch.follow(str(team.lock.with_name("servers.toml")))
    assert watch.exists
    assert not watch.lock().entries
