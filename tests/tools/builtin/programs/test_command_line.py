"""Command lines taken apart into words, and judged by a table."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import ArgumentsRefused, NotPermitted
from mcpbridge.tools.builtin.programs.allow_list import judge
from mcpbridge.tools.builtin.programs.command_line import KINDS, display_command, words_of
from mcpbridge.tools.builtin.programs.gh import GH
from mcpbridge.tools.builtin.programs.git.commands import GIT
from mcpbridge.tools.builtin.programs.gws import judge_gws

PLAIN = st.text(st.characters(exclude_categories=["Cc", "Cs"], include_characters="\n\t"), max_size=20)
SCRAPS = """
log branch tag diff -n -5 -p --stat -- main README.md --output=x -O -c x --contains -D --format=%h - -sb --exec .. git
/etc/passwd --ext-diff commit -m -am pr list --repo o/r api -X POST drive files get --params {} --upload
"""
PIECES = st.sampled_from(SCRAPS.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("log -n 5", ["log", "-n", "5"]),
        ("  log\t-5  \n", ["log", "-5"]),
        ("""commit -m 'it'"'"'s'""", ["commit", "-m", "it's"]),
        (r'commit -m "a \"b\" \\ $x \n"', ["commit", "-m", r'a "b" \ $x \n']),
        (r"log a\ b", ["log", "a b"]),
        ("log ''", ["log", ""]),
        ("log --format='%h | %s'", ["log", "--format=%h | %s"]),
        ("log --format=%h|%s", ["log", "--format=%h|%s"]),
        ("log '|'", ["log", "|"]),
        ("show HEAD^{tree} stash@{0}", ["show", "HEAD^{tree}", "stash@{0}"]),
        ("commit -m 'a\nb'", ["commit", "-m", "a\nb"]),
        ("log $HOME ~ * !x", ["log", "$HOME", "~", "*", "!x"]),
        ("", []),
    ],
)
def test_words_are_what_a_shell_would_make_without_expanding(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    "text",
    [
        *("log 'x", 'log "x', "log \\", "log\nstatus", "log\rx", "log \x00", "log '\x00'", "log \x1b[0m", "log '\x1b'"),
        *(
            "log '\r'",
            "log \x7f",
            "log \x85",
            "log \ud800",
            "log a\\\nb",
            "log | head",
            "log && x",
            "log ; x",
            "log; x",
        ),
        *("log > f", "log >f", "log 2>&1", "log `x`", "log $(x)", "log <(x)", "x " * 501, "x" * 20_001),
    ],
)
def test_what_only_a_shell_would_do_and_control_characters_are_refused(text: str) -> None:
    with pytest.raises(ArgumentsRefused):
        words_of(text)


@given(st.lists(PLAIN, max_size=8))
def test_quoted_words_come_back(words: list[str]) -> None:
    assert words_of(shlex.join(words)) == words


@given(st.text(max_size=60))
def test_any_text_gives_words_or_a_refusal(text: str) -> None:
    try:
        words = words_of(text)
    except ArgumentsRefused:
        return
    assert all("\0" not in word for word in words)
    assert display_command(words).isprintable()


@given(st.lists(PIECES | PLAIN, max_size=8))
def test_what_is_judged_to_run_is_made_of_known_options_alone(words: list[str]) -> None:
    """No word of the caller that begins with a dash gets through unless the table has it."""
    for judging, program in ((judge, GIT), (judge, GH)):
        try:
            verdict = judging(program, words)
        except (ArgumentsRefused, NotPermitted):
            continue
        command = verdict.command
        rest = list(verdict.argv[len(command.runs) :]) if verdict.argv[: len(command.runs)] == command.runs else None
        assert rest is not None or command.ends
        for word in (rest or [])[: (rest or []).index("--") if "--" in (rest or []) else None]:
            if word.startswith("-"):
                name = word.partition("=")[0] if word.startswith("--") else word[:2]
                assert name in command.options or ("-#" in command.options and word[1:].isdigit())
        assert all(not argument.startswith("-") for argument in verdict.positionals)
        assert judging(program, words) == verdict


@given(st.lists(PIECES | PLAIN, max_size=8))
def test_gws_is_judged_without_a_crash(words: list[str]) -> None:
    try:
        verdict = judge_gws(words)
    except (ArgumentsRefused, NotPermitted):
        return
    assert verdict.command.network


@given(PLAIN, st.sampled_from(sorted(KINDS)))
def test_kinds_give_a_reason_or_nothing(value: str, kind: str) -> None:
    assert isinstance(KINDS[kind](value), str)


@given(PLAIN)
def test_no_path_leads_outside(value: str) -> None:
    if not KINDS["path"](value):
        assert not value.startswith(("/", "~", "-", "\\"))
        assert ".." not in value.split("/")


def test_every_row_of_the_tables_can_be_read() -> None:
    for program in (GIT, GH):
        for words, row in program.commands.items():
            assert words not in program.never
            assert all(option.startswith("-") for option in row.options)
            assert {kind.rstrip("*") for kind in row.takes} <= KINDS.keys()
            assert {option.kind for option in row.options.values()} - {""} <= KINDS.keys()
            assert row.lists <= row.options.keys() or program is GIT
            assert row.wants <= row.options.keys()
