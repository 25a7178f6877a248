"""JSONPath mappings, and arguments in addresses: what is encoded stays one piece of where it stands."""

import time
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.tools.http.backend import outgoing_of
from mcpbridge.tools.http.request import Outgoing
from mcpbridge.tools.http.settings import HttpToolSettings
from mcpbridge.tools.json_mapping import MISSING, MappingFailed, check_paths, mapped
from mcpbridge.tools.openapi.parameter_styles import STYLES, Parameter, in_cookie, in_header, in_path, in_query

STORE = {"books": [{"title": "A", "price": 8}, {"title": "B", "price": 12}], "owner": {"name": "Ada", "none": None}}


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ("$", STORE),
        ("$.owner.name", "Ada"),
        ("$['owner']['none']", None),
        ("$.books[0].title", "A"),
        ("$.books[-1].price", 12),
        ("$.books[*].title", ["A", "B"]),
        ("$..price", [8, 12]),
        ("$.books[?@.price < 10].title", ["A"]),
        ("$.books[?search(@.title, '[B-Z]')].price", [12]),
        ("$.books[?match(@.title, 'A.')]", []),
        ("$.books[?match(@.title, '.')].title", ["A", "B"]),
        ("$.books[?match(@.title, '(')]", []),
        ("$.books[9:]", []),
        ("$.missing[*]", []),
        ({"who": "$.owner.name", "prices": "$..price", "no": "$.missing"}, {"who": "Ada", "prices": [8, 12]}),
    ],
)
def test_paths_find_values(paths: Any, expected: Any) -> None:
    """RFC 9535; a path to one place stands for its value, any other one for a list."""
    assert mapped(paths, STORE) == expected


@pytest.mark.parametrize(
    ("pattern", "whole", "part"),
    [
        (r"k.t", "kit kÖt k.t k\\t", "kit akitb kÖt k.t k\\t"),
        (r"k[.i]t", "kit k.t", "kit akitb k.t"),
        (r"k\.t", "k.t", "k.t"),
        (r"k\\.", "k\\t", "k\\t"),
        (r"\p{Lu}+", "Ö", "kÖt Ö"),
        (r"^ki.*", "kit", "kit"),
        (r".*b$", "akitb", "akitb"),
        (r"k(", "", ""),
        (r"(?=k)", "", ""),
        (5, "", ""),
    ],
)
def test_patterns_are_those_of_the_rfc(pattern: Any, whole: str, part: str) -> None:
    """RFC 9485: a dot stands for no line break. What is no pattern matches nothing; it may come from the value."""
    texts = ["kit", "akitb", "kÖt", "k.t", "k\\t", "k\nt", "k\rt", "Ö", 5, None, "\ud800"]
    value = {"pattern": pattern, "texts": texts}
    assert mapped("$.texts[?match(@, $.pattern)]", value) == whole.split()
    assert mapped("$.texts[?search(@, $.pattern)]", value) == part.split()


def test_a_path_to_one_place_that_is_not_there_finds_nothing() -> None:
    assert mapped("$.owner.age", STORE) is MISSING


@pytest.mark.parametrize(
    "path", ["books", "$.books |  $.owner", "$.", "$[", "$.a.~", "$[?@.a =~ /x/]", "$[?len(@) > 1]", "", " $"]
)
def test_what_is_no_path_of_the_rfc_is_refused_with_the_path(path: str) -> None:
    with pytest.raises(MappingFailed) as refused:
        check_paths({"a": "$.a", "b": path})
    assert repr(path) in str(refused.value)


def test_patterns_take_linear_time_and_deep_values_an_error() -> None:
    """`match()` and `search()` get patterns from whoever wrote the configuration, and texts from a service."""
    began = time.process_time()
    assert mapped("$[?search(@, '(a|a)*(a|aa)+b$')]", ["a" * 20_000 + "!"]) == []
    assert time.process_time() - began < 5
    deep: Any = {}
    for _ in range(3000):
        deep = {"a": deep}
    with pytest.raises(MappingFailed, match="nested too deeply"):
        mapped("$..a", deep)


SETTINGS = HttpToolSettings.model_validate(
    {
        "endpoint": "https://api.example.com/v1/{name}/x-{name}/end?fixed=1&q={name}",
        "params": {"p": "{name}", "list": ["a", "{name}"]},
        "headers": {"X-Said": "so: {head?}"},
    }
)

HOSTILE = [
    *("..", ".", "%2e%2e", "../admin", "a/../../b", "..%2f..%2fx"),
    *("%252e%252e", "..\\x", "..;/x", "%c0%ae/..", "a\0b", "a%0d%0ab", ""),
]


def asked(settings: HttpToolSettings, **arguments: Any) -> Outgoing:
    return outgoing_of(settings, arguments)


@given(st.text(max_size=60), st.text(max_size=20))
@example("a/b?c#d&e=f", "a")
@example("//evil.example.com/", "x")
@example("@evil.example.com", "\r\nX-Evil: 1")
@example("é😀", "\u2028")
@example("%2f%40", "ü")
def test_values_stay_where_they_stand(name: str, head: str) -> None:
    """CVE-2026-29791, CVE-2026-32871: neither host, path depth, query nor headers change, and what arrives was said."""
    try:
        outgoing = asked(SETTINGS, name=name, head=head)
    except ArgumentsRefused:
        return
    url = httpx2.URL(outgoing.url)
    assert (url.scheme, url.host, url.port, url.fragment) == ("https", "api.example.com", None, "")
    raw_path, _, raw_query = url.raw_path.decode().partition("?")
    assert outgoing.url.endswith(f"{raw_path}?{raw_query}")
    said = [unquote(part) for part in raw_path.split("/")]
    assert said == ["", "v1", name, f"x-{name}", "end"]
    pairs = [tuple(unquote(text) for text in pair.split("=")) for pair in raw_query.split("&")]
    assert pairs == [("fixed", "1"), ("q", name), ("p", name), ("list", "a"), ("list", name)]
    assert [header for header, _ in outgoing.headers] == ["x-said"]
    assert outgoing.headers[0][1] == f"so: {head}".strip(" \t")
    assert not set(outgoing.headers[0][1]) & set("\r\n\0")


@pytest.mark.parametrize("name", HOSTILE)
def test_what_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ArgumentsRefused):
        asked(SETTINGS, name=name)


@pytest.mark.parametrize("name", ["a.b", "...", "..a", "v1.2..3", "a/b", "a\\b", "50%", "%41", "C:\\x", " ", "~", "-"])
def test_honest_names_pass(name: str) -> None:
    url = asked(SETTINGS, name=name).url
    assert unquote(urlsplit(url).path.split("/")[2]) == name


_scalars = st.one_of(st.text(max_size=12), st.integers(-1000, 1000), st.booleans())
_values = st.one_of(
    _scalars, st.lists(_scalars, max_size=3), st.dictionaries(st.text(max_size=6), _scalars, max_size=3)
)


@given(st.sampled_from(sorted(STYLES["path"])), st.booleans(), st.booleans(), _values)
def test_every_style_of_a_path_parameter_is_one_segment(style: str, explode: bool, is_json: bool, value: Any) -> None:
    parameter = Parameter("arg", "na/me", "path", style, explode, is_json)
    try:
        written = in_path(parameter, value)
    except ArgumentsRefused:
        return
    url = httpx2.URL(f"https://h.example/a/{written}/b")
    assert url.raw_path.decode() == f"/a/{written}/b"
    assert url.host == "h.example"
    assert written.count("/") == 0
    assert unquote(written) not in (".", "..")


@given(st.sampled_from(sorted(STYLES["query"])), st.booleans(), st.booleans(), _values)
def test_every_style_of_a_query_parameter_keeps_to_its_pairs(style: str, explode: bool, flag: bool, value: Any) -> None:
    parameter = Parameter("arg", "n&m", "query", style, explode, is_reserved=flag)
    pairs = list(in_query(parameter, value))
    for pair in pairs:
        assert not set(pair) & set("&#\r\n ")
        assert pair.count("=") == 1
    url = httpx2.URL(f"https://h.example/?{'&'.join(pairs)}")
    assert url.query.decode() == "&".join(pairs)
    with suppress(ArgumentsRefused):
        assert not set(in_header(Parameter("arg", "X-A", "header", "simple", explode), value)) & set("\r\n\0")
    assert not set(in_cookie(Parameter("arg", "c", "cookie", "form", explode), value)) & set(";, \r\n")


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        ("simple", False, 5, "5"),
        ("simple", False, ["a", "b,c"], "a,b%2Cc"),
        ("simple", False, {"R": 1, "G": 2}, "R,1,G,2"),
        ("simple", True, {"R": 1, "G": 2}, "R=1,G=2"),
        ("label", False, 5, ".5"),
        ("label", True, ["a", "b"], ".a.b"),
        ("label", True, {"R": 1}, ".R=1"),
        ("matrix", False, 5, ";c=5"),
        ("matrix", False, ["a", "b"], ";c=a,b"),
        ("matrix", True, ["a", "b"], ";c=a;c=b"),
        ("matrix", True, {"R": 1, "G": 2}, ";R=1;G=2"),
    ],
)
def test_styles_of_paths(style: str, explode: bool, value: Any, expected: str) -> None:
    """OpenAPI 3.1, style examples."""
    assert in_path(Parameter("c", "c", "path", style, explode), value) == expected


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        ("form", True, ["a", "b&c"], "c=a&c=b%26c"),
        ("form", False, ["a", "b,c"], "c=a,b%2Cc"),
        ("form", True, {"R": 1, "G": True}, "R=1&G=true"),
        ("form", False, {"R": 1, "G": 2}, "c=R,1,G,2"),
        ("form", True, "", "c="),
        ("form", True, [], ""),
        ("spaceDelimited", False, ["a", "b"], "c=a%20b"),
        ("pipeDelimited", False, ["a", "b"], "c=a%7Cb"),
        ("deepObject", True, {"R": 1, "n": {"x": [1, 2]}}, "c%5BR%5D=1&c%5Bn%5D%5Bx%5D=1&c%5Bn%5D%5Bx%5D=2"),
    ],
)
def test_styles_of_queries(style: str, explode: bool, value: Any, expected: str) -> None:
    assert "&".join(in_query(Parameter("c", "c", "query", style, explode), value)) == expected
