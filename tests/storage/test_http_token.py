"""The token of the HTTP front: one a user, in a file of theirs alone."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mcpbridge.base.errors import ConfigError
from mcpbridge.storage.http_token import http_token, http_token_path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}


def test_it_is_made_once_and_stays_the_same(environ: dict[str, str]) -> None:
    first = http_token(environ)
    assert len(first) >= 43
    assert first == http_token(environ)
    path = http_token_path(environ)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().strip() == first
    assert path.parent == Path(environ["XDG_STATE_HOME"]) / "mcpbridge"


def test_it_is_for_this_user_whatever_the_umask_says(environ: dict[str, str]) -> None:
    before = os.umask(0)
    try:
        http_token(environ)
    finally:
        os.umask(before)
    assert stat.S_IMODE(http_token_path(environ).stat().st_mode) == 0o600


def test_two_users_have_two(environ: dict[str, str], tmp_path: Path) -> None:
    assert http_token(environ) != http_token({"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "other")})


def test_of_processes_that_make_it_at_once_one_wins(environ: dict[str, str]) -> None:
    program = "import os; from mcpbridge.storage.http_token import http_token; print(http_token(os.environ))"

    def made(_: int) -> str:
        env = {**os.environ, **environ}
        ran = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        return ran.stdout

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(made, range(4)))) == 1
    assert [path.name for path in http_token_path(environ).parent.iterdir()] == ["http-token"], "no draft is left"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606, 0o660, 0o601])
def test_one_that_others_may_have_read_or_written_is_not_used(environ: dict[str, str], mode: int) -> None:
    http_token(environ)
    http_token_path(environ).chmod(mode)
    with pytest.raises(ConfigError, match="others than its user") as refused:
        http_token(environ)
    assert str(http_token_path(environ)) in str(refused.value)
    assert "Remove it" in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"short\n", b"a " * 40, b"\xff" * 60, b"x" * 40 + b"\ny" * 40])
def test_what_is_no_token_is_not_used(environ: dict[str, str], content: bytes) -> None:
    path = http_token_path(environ)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError):
        http_token(environ)
    path.unlink()
    assert http_token(environ)


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_to_elsewhere_is_not_followed(environ: dict[str, str], tmp_path: Path, exists: bool) -> None:
    """Whoever could put it there would know what it leads to."""
    target = tmp_path / "known"
    if exists:
        target.write_text("k" * 60)
        target.chmod(0o600)
    path = http_token_path(environ)
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    with pytest.raises(ConfigError):
        http_token(environ)
    assert target.exists() == exists


def test_a_place_where_nothing_can_be_kept_is_named_with_the_ways_out(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in the way")
    with pytest.raises(ConfigError, match="cannot be kept") as refused:
        http_token(environ)
    assert "--no-auth" in str(refused.value)
    assert "--token-env" in str(refused.value)
