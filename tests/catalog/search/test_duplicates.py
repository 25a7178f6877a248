"""Tools that are nearly the same come as one; those of one server whose names are close are told apart."""

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
