"""The words of a command: where arguments stand, what is left out, and what no argument can become."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.tools.command.arguments import LONGEST_WORD, filled, filled_text, mistakes, placeholders, schema_for

TEXT = st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)

FILLED = [
    (["p", "{a}"], {"a": "x y"}, ["p", "x y"]),
    (["p", "--to={a}"], {"a": "-x"}, ["p", "--to=-x"]),
    (["p", "{a}/{b}.txt"], {"a": "x", "b": "y"}, ["p", "x/y.txt"]),
    (["p", "{a}"], {"a": "$HOME;`id`\n"}, ["p", "$HOME;`id`\n"]),
    (["p", "{a}"], {"a": "{b}", "b": "z"}, ["p", "{b}"]),
    (["p", "{{a}}", "{x", "{}", "${1}", "{print $1}"], {"a": "n"}, ["p", "{a}", "{x", "{}", "${1}", "{print $1}"]),
    (["p", "{a}", "{b?}"], {"a": ""}, ["p", ""]),
    (["p", "{b}", "c"], {"b": None}, ["p", "c"]),
    (["p", ["--max", "{m?}"], "c"], {}, ["p", "c"]),
    (["p", ["--max", "{m?}"], "c"], {"m": 3}, ["p", "--max", "3", "c"]),
    (["p", ["--in", "{a}", "--out={b}"]], {"a": "x"}, ["p"]),
    (["p", "{a}"], {"a": ["x", "y z", None, 2]}, ["p", "x", "y z", "2"]),
    (["p", "{a}", "end"], {"a": []}, ["p", "end"]),
    (["p", "-I{a}"], {"a": ["x", "y"]}, ["p", "-Ix", "-Iy"]),
    (["p", "{a}"], {"a": True}, ["p", "true"]),
    (["p", "{a}"], {"a": 1.5}, ["p", "1.5"]),
    (["p", "{a}"], {"a": {"k": ["ä"]}}, ["p", '{"k":["ä"]}']),
    (["p", "--", "{a}"], {"a": "-x"}, ["p", "--", "-x"]),
]


@pytest.mark.parametrize(("template", "arguments", "argv"), FILLED)
def test_arguments_stand_in_their_places(template: Any, arguments: dict[str, Any], argv: list[str]) -> None:
    assert list(filled(template, arguments, [])) == argv


@pytest.mark.parametrize(
    ("template", "arguments"),
    [
        (["p", "{a}"], {"a": "-x"}),
        (["p", "{a}"], {"a": "--output=/etc/passwd"}),
        (["p", "{a}"], {"a": "-"}),
        (["p", "{a}"], {"a": -1}),
        (["p", "{a}"], {"a": ["ok", "-x"]}),
        (["p", "{a}{b}"], {"a": "", "b": "-x"}),
        (["p", "{a}{b}"], {"a": "-", "b": "x"}),
        (["p", "-n", "{a}"], {"a": "-x"}),
        (["p", ["-n", "{a?}"]], {"a": "--exec=id"}),
        (["p", ["--", "{b?}"], "{a}"], {"a": "-x"}),
        (["p", "{a}", "--"], {"a": "-x"}),
        (["p", "{b}", "{a}"], {"b": "--", "a": "-x"}),
    ],
)
def test_an_argument_becomes_no_option(template: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentsRefused, match="must not begin with a dash"):
        filled(template, arguments, [])


def test_options_name_the_arguments_that_may_be_options() -> None:
    assert filled(["p", "{flags}", "{a}"], {"flags": ["-x", "--all"], "a": "b"}, ["flags"]) == ("p", "-x", "--all", "b")


@pytest.mark.parametrize("bad", ["a\0b", "\ud800", "x" * (LONGEST_WORD + 1)])
def test_what_no_program_can_be_given_is_refused(bad: str) -> None:
    with pytest.raises(ArgumentsRefused):
        filled(["p", "{a}"], {"a": bad}, [])


def test_two_lists_in_one_word_are_refused() -> None:
    with pytest.raises(ArgumentsRefused, match="both"):
        filled(["p", "{a}{b}"], {"a": ["x"], "b": ["y"]}, [])


@pytest.mark.parametrize(
    ("template", "options", "told"),
    [
        (["{program}"], [], "fixed"),
        ([["ls"]], [], "first word"),
        ([""], [], "first word"),
        (["ls", []], [], "cannot be empty"),
        (["ls", "{a}"], ["b"], "'b', which is in no word"),
        (["ls", "-{a}"], [], "choose the option"),
        (["ls", "--{a}"], [], "choose the option"),
    ],
)
def test_mistakes_of_templates_are_told(template: Any, options: list[str], told: str) -> None:
    assert told in next(mistakes(template, options))


def test_a_good_template_has_no_mistakes() -> None:
    assert not list(mistakes(["ruff", ["--select", "{rules?}"], "-{n}", "--x={y}", "{paths}"], ["n"]))


def test_the_schema_names_every_place_once() -> None:
    schema = schema_for(["p", "{a}", ["--b", "{b?}"], "{a?}"], "{text?}")
    assert list(schema["properties"]) == ["a", "b", "text"]
    assert schema["required"] == ["a"]
    assert placeholders("{x?} {{y}} {x}") == {"x": True}


def test_what_is_read_on_standard_input_has_places_too() -> None:
    assert filled_text("{a}: {{b}} {c?}\n", {"a": "{c}"}) == "{c}: {b} \n"


@given(st.lists(TEXT, min_size=1, max_size=4))
def test_no_text_is_split_or_becomes_an_option(values: list[str]) -> None:
    """Whatever the arguments are, there are as many words as places, and none of them begins with a dash."""
    names = [f"a{number}" for number in range(len(values))]
    template = ["p", *(f"{{{name}}}" for name in names)]
    try:
        argv = filled(template, dict(zip(names, values, strict=True)), [])
    except ArgumentsRefused:
        assert any(value.startswith("-") for value in values)
    else:
        assert list(argv[1:]) == values


@pytest.mark.skipif(os.name != "posix", reason="other systems give programs one line of text")
def test_a_program_gets_exactly_the_words() -> None:
    words = ["a b", "", "*", "$(id)", "'\"\\", "ä\n", "&&", "{x}"]
    argv = filled(
        [sys.executable, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", "{all}"], {"all": words}, []
    )
    said = subprocess.run(argv, capture_output=True, check=True).stdout
    assert json.loads(said) == words
