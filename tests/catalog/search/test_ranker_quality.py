"""The right tool among the first: a small catalog with requests in words of their own, to notice a loss (issue 6).

Each line of the catalog is a server, and its tools with what they say; each request names the tool that serves it.
"""

from collections.abc import Sequence

import pytest

from mcpbridge.catalog.search.index import CatalogRankers
from mcpbridge.catalog.search.ranker import Ranker, ServerText, ToolText

SERVERS: dict[str, dict[str, str]] = {
    "repos": {
        "create_issue": "Open a new issue in a repository",
        "list_issues": "List issues of a repository with filters",
        "close_issue": "Close an issue",
        "create_pull_request": "Open a pull request from a branch",
        "get_file_contents": "Read a file of a repository",
        "fork_repository": "Fork a repository into your account",
    },
    "warehouse": {
        "run_query": "Execute a SQL query and return rows",
        "list_tables": "List the tables of the database",
        "describe_table": "Columns and types of a table",
        "export_csv": "Export a table as CSV",
    },
    "calendar": {
        "create_event": "Add an event to the calendar",
        "delete_event": "Remove an event",
        "find_free_slots": "Find times when all attendees are available",
    },
    "documents": {
        "convert_pdf": "Convert a PDF to text",
        "summarize": "Make a short summary of a document",
        "translate_text": "Translate text into another language",
        "read_workbook": "Read the cells of an Excel workbook",
    },
    "market": {
        "get_quote": "Latest price of a stock by ticker symbol",
        "exchange_rate": "Exchange rate between two currencies",
        "company_news": "Recent news about a company",
    },
    "network": {
        "dns_lookup": "Resolve a domain name to its DNS records",
        "ip_geolocation": "Location and owner of an IP address",
        "ping_host": "Check whether a host answers",
    },
    "cluster": {
        "list_pods": "List pods of a namespace",
        "pod_logs": "Show logs of a pod",
        "scale_deployment": "Set the number of replicas of a deployment",
        "restart_deployment": "Restart all pods of a deployment",
    },
    "travel": {
        "search_flights": "Find flights between two airports",
        "search_hotels": "Find hotels in a city",
        "book_table": "Reserve a table at a restaurant",
    },
    "music": {"play_track": "Play a song", "create_playlist": "Make a playlist", "skip": "Next track"},
    "maps": {"directions": "Route between two places", "nearby_places": "Points of interest around a location"},
}

REQUESTS = {
    "report a bug in our repo": "repos/create_issue",
    "which bugs are still open?": "repos/list_issues",
    "what columns does the customers table have": "warehouse/describe_table",
    "SELECT name FROM users WHERE age > 30": "warehouse/run_query",
    "when could Anna and Tom both meet next week?": "calendar/find_free_slots",
    "cancel my appointment tomorrow": "calendar/delete_event",
    "give me the gist of this paper": "documents/summarize",
    "say this in French": "documents/translate_text",
    "what's in budget.xlsx": "documents/read_workbook",
    "how many dollars is 50 euros": "market/exchange_rate",
    "how much is one share of Apple": "market/get_quote",
    "where is 8.8.8.8": "network/ip_geolocation",
    "is example.com up?": "network/ping_host",
    "why did the container crash, show its output": "cluster/pod_logs",
    "run five copies of the api service": "cluster/scale_deployment",
    "fly from Oslo to Rome": "travel/search_flights",
    "somewhere to sleep in Vienna": "travel/search_hotels",
    "reserve dinner for two": "travel/book_table",
    "put on some jazz": "music/play_track",
    "how do I get from the station to the museum": "maps/directions",
    "coffee shops around here": "maps/nearby_places",
}


@pytest.fixture(scope="module")
def ranker() -> Ranker:
    return CatalogRankers().of(
        [
            (
                ServerText(server),
                [ToolText(f"{server}/{name}", server, name, description=said) for name, said in of.items()],
            )
            for server, of in SERVERS.items()
        ]
    )


def found(ranker: Ranker, text: str, wanted: str, first: int) -> bool:
    return wanted in [hit.id for hit in ranker.rank(text, first)]


def share(hits: Sequence[bool]) -> float:
    return sum(hits) / len(hits)


def test_requests_find_their_tools(ranker: Ranker) -> None:
    assert share([found(ranker, text, wanted, 1) for text, wanted in REQUESTS.items()]) >= 0.7
    assert share([found(ranker, text, wanted, 3) for text, wanted in REQUESTS.items()]) >= 0.85


def test_requests_for_two_things_find_both(ranker: Ranker) -> None:
    pairs = list(REQUESTS.items())
    hits = [
        found(ranker, f"{one}. Then {other}", wanted, 5)
        for (one, first), (other, second) in zip(pairs, pairs[5:], strict=False)
        for wanted in (first, second)
    ]
    assert share(hits) >= 0.75
