"""Tools that are nearly the same come as one; those of one server whose names are close are told apart."""

import pytest

from mcpbridge.catalog.search.duplicates import Ability, abilities, apart
from support.catalog.searchable_tools import Tool, an_object

SEARCH = "Search the web for pages and return their titles and addresses"


def found(*tools: Tool) -> list[Ability]:
    return abilities([tool.id for tool in tools], {tool.id: tool.text for tool in tools})


def notes(*tools: Tool, shown: str = "", tokens: int = 60) -> str:
    ids = [tool.id for tool in tools]
    return apart(ids, {tool.id: tool.text for tool in tools}, dict.fromkeys(ids, shown), tokens=tokens)


def test_the_same_tool_of_several_servers_is_one_ability() -> None:
    query = an_object("query", query="string", count="integer")
    tools = [
        Tool("brave", "brave_web_search", SEARCH, query),
        Tool("files", "search", "Search files by their names", query),
        Tool("brave-2", "web_search", f"{SEARCH}.", query),
        Tool("other", "webSearch", "Search the web for pages; return titles and addresses", query),
    ]  # fmt: skip
    assert found(*tools) == [
        Ability("brave/brave_web_search", ("brave-2/web_search", "other/webSearch")),
        Ability("files/search"),
    ]


def test_other_abilities_stay() -> None:
    issue = an_object("title", title="string")
    kept = [
        (Tool("gitlab", "create_issue", "Create a new issue in a GitLab project"),
         Tool("github", "create_issue", "Create a new issue in a GitHub project")),
        (Tool("a", "get_item", SEARCH, issue), Tool("a", "get_items", SEARCH, issue)),
        (Tool("a", "open_issue", SEARCH, issue), Tool("b", "close_issue", SEARCH, issue)),
        (Tool("notion", "search", "Search", issue), Tool("slack", "search", "", issue)),
        (Tool("a", "send", "Send a text message to a channel", an_object(channel="string")),
         Tool("b", "send", "Transfer coins between two wallets", an_object(wallet="string"))),
    ]  # fmt: skip
    for pair in kept:
        assert [one.also for one in found(*pair)] == [(), ()]
    assert len(found(Tool("mail", "list", ""), Tool("mail-eu", "list", ""))) == 1


def test_siblings_are_told_apart_by_what_only_one_of_them_says() -> None:
    pages = [
        Tool("wiki", "create_page", "Store a page in the wiki. Only for new pages. It fails for a page that exists."),
        Tool("wiki", "upsert_page", "Store a page in the wiki. Replaces an existing page of the same title."),
        Tool("wiki", "list_pages", "List the pages of the wiki."),
    ]
    assert notes(*pages) == (
        "create_page: Only for new pages · upsert_page: Replaces an existing page of the same title"
    )
    assert notes(*pages, tokens=5) == ""
    assert notes(*pages[:1]) == ""


def test_nothing_is_said_twice_and_nothing_of_tools_that_differ_by_name() -> None:
    pages = [
        Tool("wiki", "read_page", "Read a page. The text is in Markdown."),
        Tool("wiki", "read_page_raw", "Read a page. The text is what was typed, with all marks."),
    ]
    assert "read_page_raw: " in notes(*pages)
    assert notes(*pages, shown=" ".join(page.description for page in pages)) == ""
    assert notes(Tool("a", "create_page", "Makes a page."), Tool("a", "delete_page", "Takes a page away.")) == ""
    assert notes(Tool("a", "get_page", SEARCH), Tool("b", "get_page", "Fetch a page only once.")) == ""
    code = 'Store a page in the wiki. {"only": "new"} existing = [1]. path: only a path'
    assert "only" not in notes(Tool("w", "add_page", code), Tool("w", "new_page", "Store a page in the wiki."))


def test_texts_of_any_length_are_cut() -> None:
    long = [Tool("a", f"get_page_{n}", f"{SEARCH} only {'word ' * 400_000} {n}") for n in range(50)]
    assert len(notes(*long, tokens=10_000)) < 6000
    assert len(found(*long)) == 50
    assert found() == []
    assert notes() == ""


NOUNS = ["apple", "river", "stone", "cloud", "window", "garden", "bridge", "candle", "paper", "silver"]


def described(*, shared: int, of: int, parameters: int, of_parameters: int) -> tuple[Tool, Tool]:
    """Two tools of one name on two servers, with so many words and parameters in common, of so many that both have."""
    words, names = NOUNS[:of], [f"p{number}" for number in range(of_parameters)]
    extra = (of - shared) // 2
    return (
        Tool("one", "measure", " ".join(words[: of - extra]), an_object(**dict.fromkeys(names, "string"))),
        Tool("two", "measure", " ".join(words[of - extra - shared :]),
             an_object(**dict.fromkeys(names[:parameters], "string"))),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shared", "of", "parameters", "of_parameters", "is_same"),
    [
        (8, 10, 3, 10, True),  # much of the words, something of the parameters
        (8, 10, 2, 10, False),
        (7, 9, 3, 10, False),
        (10, 10, 0, 0, True),
        (5, 9, 5, 10, True),  # half of both
        (5, 10, 5, 10, True),
        (4, 10, 5, 10, False),
        (4, 10, 10, 10, False),
        (6, 10, 4, 10, False),
        (10, 10, 0, 3, False),
    ],
)
def test_tools_of_two_servers_are_the_same_by_their_words_and_parameters(
    shared: int, of: int, parameters: int, of_parameters: int, *, is_same: bool
) -> None:
    one, two = described(shared=shared, of=of, parameters=parameters, of_parameters=of_parameters)
    both = set(one.description.split()) & set(two.description.split())
    every = set(one.description.split()) | set(two.description.split())
    assert len(both) * of == shared * len(every), "the table says what the tools have"
    assert len(found(one, two)) == (1 if is_same else 2)
    assert len(found(two, one)) == (1 if is_same else 2)


def test_tools_that_say_nothing_are_the_same_on_servers_of_one_name_alone() -> None:
    schema = an_object(folder="string")
    assert len(found(Tool("mail", "list", "List", schema), Tool("mail-eu", "list", "", schema))) == 1
    assert len(found(Tool("mail", "list", "List", schema), Tool("mail-eu", "list", "", an_object(box="string")))) == 2
    assert len(found(Tool("mail", "list", "List", schema), Tool("post", "list", "", schema))) == 2


def test_names_of_parameters_are_compared_without_case_and_by_their_beginning() -> None:
    """A hundred characters of a name; forty names."""
    long = "n" * 100
    one, two = an_object(**{f"{long}a": "string"}), an_object(**{f"{long.upper()}b": "string"})
    assert len(found(Tool("a", "get", SEARCH, one), Tool("b", "get", SEARCH, two))) == 1
    shorter = an_object(**{"n" * 99 + "b": "string"})
    assert len(found(Tool("a", "get", SEARCH, one), Tool("b", "get", SEARCH, shorter))) == 2
    same = {f"p{number}": "string" for number in range(40)}
    many = [an_object(**same, **{f"{server}{number}": "string" for number in range(400)}) for server in "ab"]
    assert len(found(Tool("a", "get", SEARCH, many[0]), Tool("b", "get", SEARCH, many[1]))) == 1


@pytest.mark.parametrize(
    ("one", "other", "are_siblings"),
    [
        ("create_page", "upsert_page", True),  # verbs of one kind
        ("create_page", "add_page", True),
        ("create_page", "delete_page", False),
        ("create_page", "show_page", False),
        ("page", "page_raw", True),  # no verb at all
        ("page", "create_page", False),
        ("get_page", "get_page_as_html", True),
        ("get_page", "get_page_raw_html_text", False),  # more than two words longer
        ("get_page", "get_page_raw_html", True),
        ("get_page_raw", "get_page_html", False),  # neither has all words of the other
        ("get", "get_page", False),  # nothing is named
        ("get_page", "get_space", False),
        ("roll_page", "solve_page", False),  # verbs of no kind, and not the same one
    ],
)
def test_siblings_do_the_same_kind_of_thing_to_nearly_the_same_thing(
    one: str, other: str, *, are_siblings: bool
) -> None:
    text = "Works on what the wiki keeps for everybody"
    pair = [Tool("wiki", one, f"{text}. Only for apples."), Tool("wiki", other, f"{text}. Never for stones.")]
    both = {notes(*pair), notes(*reversed(pair))}
    if are_siblings:
        first, second = f"{one}: Only for apples", f"{other}: Never for stones"
        assert both == {f"{first} · {second}", f"{second} · {first}"}
    else:
        assert both == {""}


def test_siblings_begin_to_describe_themselves_alike() -> None:
    """Three words of ten in their first sentences, at least; what comes later is not looked at."""
    later = "Only for what is kept in the garden of stones and rivers of silver."
    alike = [
        Tool("w", "get_page", "Apple river stone. Only for the candles."),
        Tool("w", "get_page_raw", "Apple river garden. Never for the bridges."),
    ]
    other = [
        Tool("w", "get_page", f"Apple river cloud window bridge. {later}"),
        Tool("w", "get_page_raw", f"Apple river candle paper garden silver. {later}"),
    ]
    assert notes(*alike) == "get_page: Only for the candles · get_page_raw: Never for the bridges"
    assert notes(*other) == ""


def page(name: str, says: str) -> Tool:
    return Tool("wiki", name, f"Works on a page of the wiki. {says}.")


PAIRS = [
    page("get_page", "Only apples, silver candles"),
    page("get_page_raw", "Never rivers without bridges"),
    page("add_user", "Either windows or gardens"),
    page("add_user_group", "Instead of stones, clouds"),
]


def test_each_tool_is_told_apart_once_and_four_together_at_most() -> None:
    pages = [
        page(f"get_page_{letter * 3}", f"Only instead of {noun} papers")
        for letter, noun in zip("abcdefghij", NOUNS, strict=True)
    ]
    bare = page("get_page", "Never without those readers")
    text = notes(bare, *pages, tokens=1000)
    told = [note.partition(":")[0] for note in text.split(" · ")]
    assert told == ["get_page", "get_page_aaa", "get_page_bbb", "get_page_ccc"]
    assert notes(*PAIRS, tokens=1000) == (
        "get_page: Only apples, silver candles · get_page_raw: Never rivers without bridges"
        " · add_user: Either windows or gardens · add_user_group: Instead of stones, clouds"
    )


def test_notes_take_the_tokens_that_there_are() -> None:
    """Those of further groups are left out, and the first stays."""
    texts = {tool.id: tool.text for tool in PAIRS}

    def limited(tokens: int) -> str:
        return apart(list(texts), texts, {}, tokens=tokens, count=lambda text: len(text.split()))

    everything = limited(1000)
    words = len(everything.split())
    assert limited(words) == everything
    assert limited(words - 1) == "get_page: Only apples, silver candles · get_page_raw: Never rivers without bridges"
    assert limited(11) == "get_page: Only apples, silver candles · get_page_raw: Never rivers without bridges"
    assert limited(10) == ""


def test_a_note_is_the_clause_that_tells_most() -> None:
    """Words that no other has, and those that often tell; the earlier of two that tell as much."""
    base = page("get_page", "Plain")

    def note(says: str) -> str:
        return notes(base, page("get_page_raw", says)).partition("get_page_raw: ")[2]

    assert note("It has apples and rivers. Only apples, never rivers") == "Only apples, never rivers"
    assert note("Only silver apples; only silver rivers") == "Only silver apples"
    assert note("Works on a page") == ""
    assert note("Args: only apples and rivers. Only silver") == "", "what is said of parameters is not the tool"
    assert note("It gives apples, but never any rivers") == "never any rivers"
    assert len(note("only " + "river " * 40)) <= 64
    assert notes(base, page("get_page_raw", "Only apples"), shown="Works on it. Only apples here") == ""
