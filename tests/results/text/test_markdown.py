"""Previews of Markdown."""

from mcpbridge.results.document import Document
from mcpbridge.results.preview.preview import preview_text

GUIDE = (
    "# Guide\n\nStart here. The default port is **6671**. Then go on.\n\n"
    + "".join(f"## {at}. Part {at}\n\n{'words and words ' * 40}\n\n" for at in range(1, 13))
    + "```python\n# no heading\nx = 1\n```\n\n```sh\nls\n```\n\n- [ ] open thing\n- [x] done thing\n- plain\n\n"
    "| name | size |\n|---|---|\n| a | 1 |\n| b | 2 |\n\nSee [docs](https://x.example/d)"
    " and ![pic](p.png).\n\nThe end.\n"
)


def test_the_outline_and_what_is_set_off_are_told() -> None:
    text = preview_text(Document(GUIDE, "markdown"), 1900)
    assert "# headings: 1; ## headings: 12; code blocks: 2 (python×1, sh×1); tables: 1; list items: 3" in text
    assert "tasks: 1 done, 1 open; links: 1; images: 1" in text
    assert "title: Guide" in text
    assert "12 ## headings: 1. Part 1 | 2. Part 2 |" in text
    assert "The default port is **6671**." in text
    assert "open tasks: open thing" in text
    assert "table 1: 2 rows × 2 columns: name | size" in text
    assert "last line: The end." in text


def test_the_headings_come_first_in_a_small_room() -> None:
    text = preview_text(Document(GUIDE, "markdown"), 500)
    assert all(f"{at}. Part {at}" in text for at in range(1, 13))


def test_underlined_headings_count() -> None:
    text = preview_text(Document("Title\n=====\n\nwords\n\nPart\n----\n\nmore\n", "markdown"), 500)
    assert "# headings: 1; ## headings: 1" in text
