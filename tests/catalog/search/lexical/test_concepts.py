"""What a request implies, and the knowledge that it is taken from."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.search.lexical.concepts import expansions, in_english, lexicon_files


@pytest.mark.parametrize(
    ("query", "implied"),
    [
        ("is ibuprofen safe with aspirin?", {"drug", "medicine"}),
        ("Subaru Outback prices", {"car", "vehicle", "cost"}),
        ("how many kroner do I get for 20 bucks", {"currency", "exchange", "rate"}),
        ("Next.js docs", {"documentation", "library"}),
        ("who owns this domain", {"whois", "owner"}),
        ("what's the weather like in Lisbon", {"forecast", "location"}),
        ("What’s 23 times 17", {"multiply", "calculate"}),
        ("get rid of the tmp directory", {"delete", "remove", "folder"}),
        ("kick off the nightly run", {"start", "trigger"}),
        ("list PRs", {"pull", "request", "review"}),
        ("reviewing merge requests", {"pull", "repository"}),
        ("plotting graphs", {"chart", "visualization"}),
        ("c++ and c# snippets", {"code"}),
    ],
)
def test_a_request_implies_the_words_of_tools_that_serve_it(query: str, implied: set[str]) -> None:
    assert implied <= expansions(query).keys()


@pytest.mark.parametrize(
    ("query", "implied"),
    [
        ("Wie wird das Wetter morgen?", {"weather", "forecast"}),
        ("supprimer tous les fichiers", {"delete", "remove", "file"}),
        ("¿cuánto cuesta una habitación?", {"price", "cost", "hotel"}),
        ("enviar mensagem", {"send", "message"}),
        ("traduci questa pagina", {"translate", "page"}),
        ("zoek vluchten", {"search", "flight"}),
        ("отправь письмо", {"send", "email"}),
        ("найди рейсы", {"find", "flight"}),
        ("北京明天会下雨吗", {"weather", "forecast"}),
        ("メールを送って", {"send", "email"}),
        ("파일 삭제해줘", {"file", "delete"}),
    ],
)
def test_words_of_other_languages_imply_english_ones(query: str, implied: set[str]) -> None:
    assert implied <= expansions(query).keys()


def test_descriptions_in_other_letters_have_english_words() -> None:
    assert {"weather", "forecast"} <= set(in_english("查询指定城市的天气"))
    assert {"search", "flight"} <= set(in_english("Поиск рейсов между городами"))
    assert in_english("Searches flights; Wetter in Köln, 天气") == []
    assert in_english("") == []
    assert in_english("天气" * 100_000) == in_english("天气")


def test_the_longest_term_at_a_place_is_the_one_that_counts() -> None:
    assert "car" in expansions("Prius mileage")
    assert "race" in expansions("the last Grand Prix")
    assert "database" in expansions("sql server")
    assert "machine" not in expansions("sql server")


def test_words_of_the_query_are_not_implied_in_any_form() -> None:
    for query in ("delete the files", "deleting a file", "File deleted", "drugs like ibuprofen"):
        said = set(query.lower().split())
        assert not {"delete", "file", "drug"} & expansions(query).keys() & {word.rstrip("sd") for word in said}
    assert "drug" not in expansions("drugs like ibuprofen")
    assert "delete" not in expansions("deleting old files")


def test_things_known_by_their_shape_are_among_it() -> None:
    assert "ip" in expansions("8.8.8.8")


def test_nothing_is_implied_by_nothing() -> None:
    for text in ("", " \n", "?!", "\0", "\ud800", "zzzzqqq"):
        assert expansions(text) == {}


@given(st.text(max_size=300))
def test_answers_are_bounded_and_always_the_same(text: str) -> None:
    found = expansions(text)
    assert len(found) <= 20
    assert all(0 < weight <= 1 for weight in found.values())
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert list(found.items()) == list(expansions(text).items())


@given(
    st.sampled_from(["1.", "1,", "a.", "select ", "天气", "a", "a-", "1:", "@a", "+1 ", "$A", "\\d", "(match("]),
    st.sampled_from(["", "x "]),
)
def test_only_the_beginning_of_a_long_query_is_looked_at(piece: str, before: str) -> None:
    text = (before + piece * 100_000)[:100_000]
    assert expansions(text + " ibuprofen") == expansions(text)


# The files: people add to them, so mistakes are told with the line.


def _lines() -> Iterator[tuple[str, str]]:
    for path in lexicon_files():
        for number, line in enumerate(path.read_text("utf-8").replace("\n ", "\0").split("\n"), 1):
            if line and not line.startswith("#"):
                yield f"{path.name}, entry {number}: {line[:60]!r}", line.replace("\0", " ")


def _terms(line: str) -> list[str]:
    left = line[2:] if line.startswith("= ") else line.partition(" > ")[0]
    return [term.strip() for term in left.split(",")]


def test_every_line_is_a_class_a_ring_or_terms_with_words() -> None:
    for where, line in _lines():
        if line.startswith("["):
            assert line in ("[entity]", "[idiom]", "[synonym]", "[abroad]"), where
        elif line.startswith("= "):
            assert len(_terms(line)) > 1, where
            assert not set(line) & set("|>"), where
        else:
            assert line.count(" > ") == 1, where
            assert re.fullmatch(r"(?:[a-z0-9]+ ?)*(?:\| [a-z0-9 -]+)?", line.partition(" > ")[2]), where


_TERM = re.compile(r"[a-z0-9]+(?:[.&][a-z0-9]+)*[+#]*(?: [a-z0-9]+(?:[.&][a-z0-9]+)*[+#]*)*\*?")


def test_terms_are_as_they_are_looked_up() -> None:
    for where, line in _lines():
        if line.startswith("["):
            continue
        for term in _terms(line):
            assert term, where
            assert term == term.lower(), f"{where}: {term}"
            assert not term.isascii() or _TERM.fullmatch(term), f"{where}: {term}"
            assert len(term.split()) <= 5, f"{where}: {term}"


def test_a_term_stands_once_in_a_list() -> None:
    for where, line in _lines():
        if not line.startswith("["):
            assert [term for term, times in Counter(_terms(line)).items() if times > 1] == [], where


def test_no_term_is_dead() -> None:
    """Neither by accents, nor by how texts are taken apart, nor by a longer list of words."""
    for where, line in _lines():
        if line.startswith(("[", "= ")):
            continue
        words = line.partition(" > ")[2].replace("|", " ").split()
        for term in _terms(line):
            text = term.removesuffix("*")
            implied = expansions(text)
            assert any(word in implied or word[:3] in text for word in words), f"{where}: {term}"


def test_the_files_are_small_and_well_filled() -> None:
    assert sum(path.stat().st_size for path in lexicon_files()) < 200_000
    assert sum(len(_terms(line)) for _, line in _lines()) > 8_000
    assert [path.suffix for path in lexicon_files()] == [".txt"] * len(lexicon_files())
    assert all(isinstance(path, Path) for path in lexicon_files())
