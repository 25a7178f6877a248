"""Options are read without `argparse` where they are plain, and mean the same."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcpbridge.app.cli import serve
from mcpbridge.app.cli.daemon import run as daemon
from mcpbridge.app.plain_options import Given, read_options, read_plain

if TYPE_CHECKING:
    from argparse import ArgumentParser

COMMANDS: dict[str, tuple[Any, "Callable[[], ArgumentParser]"]] = {
    "serve": (serve.OPTIONS, serve.options_parser),
    "daemon": (daemon.OPTIONS, daemon.options_parser),
}
OPTIONS = sorted({name for options, _ in COMMANDS.values() for name in options})
VALUES = ["", "7", "0x7", "1.5", "a b", "debug", "loud", "-1", "-", "--", "--http", "--no-idle-exit", "--conf", "x=y"]
WORDS = st.one_of(
    st.sampled_from([*OPTIONS, *VALUES]),
    st.builds("{}={}".format, st.sampled_from(OPTIONS), st.sampled_from(VALUES)),
)


def as_argparse_reads(words: list[str], parser: "Callable[[], ArgumentParser]") -> dict[str, Any] | None:
    try:
        return vars(parser().parse_args(words))
    except SystemExit:
        return None


@given(st.sampled_from(sorted(COMMANDS)), st.lists(WORDS, max_size=6))
@example("daemon", ["--also-listen-fd", "3", "--also-listen-fd=4", "--idle-exit", "--look-every", "0.5"])
@example("serve", ["--server=--", "--no-auth"])
@example("serve", ["--standalone", "--config", "a.toml", "--log-level=debug", "--config=b.toml"])
def test_what_is_read_is_what_argparse_reads(command: str, words: list[str]) -> None:
    options, parser = COMMANDS[command]
    plain, whole = read_plain(words, options), as_argparse_reads(words, parser)
    if plain is not None:
        assert vars(plain) == whole
    elif whole is not None:
        assert vars(read_options(words, options, parser)) == whole


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("serve", ["--config", "servers.toml", "--standalone", "--log-level", "debug"]),
        ("daemon", ["--config=servers.toml", "--idle-exit", "--listen-fd", "3", "--lock-fd", "4", "--found"]),
    ],
)
def test_what_programs_write_needs_no_argparse(command: str, words: list[str]) -> None:
    assert read_plain(words, COMMANDS[command][0]) is not None


def test_the_rest_is_explained_by_argparse(capsys: pytest.CaptureFixture[str]) -> None:
    options, parser = COMMANDS["daemon"]

    def read(*words: str) -> Given:
        return read_options(words, options, parser)

    assert read("--http").http == "127.0.0.1:8808"
    assert (read("--no-idle-exit").idle_exit, read("--idle-exit").idle_exit) == (False, True)
    assert read("--http=:1", "--also-lock-fd", "5").also_lock_fd == [5]
    assert options["--also-lock-fd"]["default"] == [], "which is nobody's own"
    with pytest.raises(SystemExit, match="2"):
        read("--lock-fd", "seven")
    assert "argument --lock-fd: invalid int value: 'seven'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        read("--help")
    shown = capsys.readouterr().out
    assert "--idle-exit, --no-idle-exit" in shown
    assert "--also-lock-fd" not in shown, "other programs write it"
