"""Previews of pages."""

from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.results.document import Document
from mcpbridge.results.preview.preview import preview_text
from mcpbridge.results.text.html import page_of

PAGE = (
    "<html><head><title>Rivers &amp; lakes</title><meta name='description' content='About water'>"
    "<style>p{color:red}</style><script>var a = '<p>not this</p>';</script></head><body><!-- <h1>nor this</h1> -->"
    "<ul><li><a href='/a'>Home</a><li><a href='/b'>Maps</a></ul><h1>Rivers</h1>"
    + "".join(f"<h2>Part {at}</h2><p>River {at} is <b>long</b>.</p>" for at in range(9))
    + "<table><tr><th>River</th><th>Length</th><th>State</th></tr>"
    + "".join(f"<tr><td>R{at}</td><td>{at * 10}</td><td>{'dry' if at % 4 else 'wet'}</td></tr>" for at in range(20))
    + "</table><form><input name=q></form></body></html>"
)


def test_title_headings_tables_and_links_are_told() -> None:
    text = preview_text(Document(PAGE, "html"), 1900)
    assert "title: Rivers & lakes" in text
    assert "description: About water" in text
    assert "9 h2 headings: Part 0 | Part 1" in text
    assert "table: 20 rows × 3 columns: River | Length | State" in text
    assert "Length 0–190, sum 1900; State dry×15 wet×5" in text
    assert "R7|70|dry" in text
    assert "last row: R19|190|dry" in text
    assert "2 links: Home → /a | Maps → /b" in text
    assert "links (a): 2" in text
    assert "form fields: q" in text
    assert "this" not in text


def test_cells_and_items_that_nobody_closed_are_read() -> None:
    page = page_of("<table><tr><td>a<td>b<tr><td>c<td>d</table><ul><li>one<li>two</ul>")
    assert page.tables == [[["a", "b"], ["c", "d"]]]
    assert page.lists == [["one", "two"]]


def test_tables_within_tables_stay_apart() -> None:
    page = page_of("<table><tr><td>x<table><tr><td>y</td></tr></table></td><td>z</td></tr></table>")
    assert page.tables[1] == [["y"]]


@given(
    st.lists(
        st.sampled_from(
            ["<", ">", "</", "<ul>", "<li>", "<td>", "<table>", "<!--", "-->", "<script>", '"', "x", "&amp;"]
        )
    )
)
def test_any_soup_of_tags_is_read(pieces: list[str]) -> None:
    """No more of a tag is counted than there is, and what is in a comment or a script is no text."""
    page = page_of("".join(pieces))
    for tag in ("ul", "li", "td", "table"):
        assert page.tags[tag] <= pieces.count(f"<{tag}>")
    assert len(page.lists) <= pieces.count("<ul>")


def test_what_is_nested_very_deep_is_read_in_passing() -> None:
    page = page_of("<ul><li>" * 5000 + "end" + "</ul>" * 5000 + "<ul><li>after</ul>")
    assert page.tags["ul"] == 5001
    assert page.lists[-1] == ["after"]
