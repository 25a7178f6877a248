import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.uri_templates import LONGEST_URI, UriBits, UriTemplate


def matches(template: str, uri: str) -> bool:
    return UriTemplate(template).matches(UriBits(uri))


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("plain:text", "plain:text"),
        ("users://{id}", "users://42"),
        ("users://{id}/profile", "users://a%2Fb/profile"),
        ("file:///{+path}", "file:///a/b/c.txt"),
        ("x:{a}-{b}", "x:1-2-3"),
        ("x:{+a}/a{b}", "x:p/a/q/ab"),  # the first `/a` leads nowhere
        ("x:{a,b}", "x:1,2"),
        ("doc://d{#part}", "doc://d#top/x"),
        ("doc://d{#part}", "doc://d"),
        ("x:f{.ext}", "x:f.tar.gz"),
        ("x:r{/a}", "x:r/1"),
        ("x:r{/a,b}", "x:r/1/2"),
        ("x:r{/a*}/end", "x:r/1/2/3/end"),
        ("x:p{;a,b}", "x:p;a=1;b=2"),
        ("x:s{?q,page}", "x:s?page=2&q=a/b?c"),
        ("x:s{?q}", "x:s"),
        ("x:s?fixed=1{&q}", "x:s?fixed=1&q=2"),
        ("x:{a:3}", "x:abc"),
        ("{+any}", "what:ever/it?is#x"),
        ("x:{a}", "x:ünïcode ☃"),
        ("x:{a}", "x:"),
        ("", ""),
    ],
)
def test_an_expansion_matches(template: str, uri: str) -> None:
    assert matches(template, uri)


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("users://{id}", "users://a/b"),
        ("users://{id}", "Users://a"),
        ("users://{id}/profile", "users://42/settings"),
        ("users://{id}/profile", "users://42/profile/x"),
        ("x:s{?q}", "x:s#top"),
        ("x:r{/a}", "x:r1"),
        ("x:r{/a}", "x:r/1/2"),
        ("plain:text", "plain:text2"),
        ("", "x"),
    ],
)
def test_what_is_no_expansion_does_not_match(template: str, uri: str) -> None:
    assert not matches(template, uri)


@pytest.mark.parametrize("template", ["x:{", "x:}", "x:{}", "x:{+}", "x:{a}}", "x:{{a}", "x:{a}{", "x:" + "{a}" * 2000])
def test_a_malformed_template_matches_nothing(template: str) -> None:
    assert not matches(template, "x:")
    assert not matches(template, template)


def test_a_uri_beyond_all_reason_matches_no_template() -> None:
    assert matches("{+a}", "x" * LONGEST_URI)
    assert not matches("{+a}", "x" * (LONGEST_URI + 1))


@pytest.mark.parametrize("operator", ["", "+", "/", "?", "."])
def test_templates_made_to_backtrack_cost_no_more_than_others(operator: str) -> None:
    """CVE-2026-0621: as a regular expression each of these would outlast the machine."""
    template = "x:" + f"{{{operator}a}}a" * 200 + "!"
    assert not matches(template, "x:" + "a" * (LONGEST_URI - 2))


simple_templates = st.lists(
    st.sampled_from(["{v}", "{+v}", "{#v}", "{?v}", "{/v}", "{/v*}", "{.v}", "{;v}", "{&v}", "a", "/", "?", "b#"]),
    max_size=7,
).map("".join)

AS_REGEX = {
    "{v}": "[^/?#]*",
    "{+v}": ".*",
    "{#v}": "(?:#.*)?",
    "{?v}": r"(?:\?[^#]*)?",
    "{&v}": "(?:&[^#]*)?",
    "{/v}": "(?:/[^/?#]*)?",
    "{/v*}": "(?:/[^?#]*)?",
    "{.v}": r"(?:\.[^/?#]*)?",
    "{;v}": "(?:;[^/?#]*)?",
}


@given(simple_templates, st.text("a/b?#.;&", max_size=12))
def test_it_says_what_a_regular_expression_would(template: str, uri: str) -> None:
    pattern = "".join(AS_REGEX.get(part, re.escape(part)) for part in re.findall(r"\{[^}]*\}|[^{]", template))
    assert matches(template, uri) == bool(re.fullmatch(pattern, uri, re.DOTALL))


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_will_do_for_both(template: str, uri: str) -> None:
    """A template without a brace is the address itself."""
    found = matches(template, uri)
    assert isinstance(found, bool)
    if not {"{", "}"} & set(template):
        assert found == (template == uri)
