"""What is advised about tools that cost much: it fits what is configured already."""

import pytest

from mcpbridge.app.console.pages.savings_advice import NOTHING, advice_on_definition, advice_on_results
from mcpbridge.catalog.settings import ExposeSettings

COST = {"tool": "shop/find_orders", "sent": 1000, "tidy": 900, "slim": 500, "skeleton": 300, "signatures": 100}
ROW = {"calls": 1, "shown": 10, "recalled": 0, "saved": 0}


@pytest.mark.parametrize(
    ("expose", "words"),
    [
        ({}, 'expose.slim = "slim" lists it in 500 tokens'),
        ({"slim": "slim"}, 'expose.slim = "signatures" lists it in 100 tokens in place of 500'),
        ({"slim": "signatures"}, "expose.hide"),
        ({"mode": "search", "slim": "slim"}, "nothing: clients find it by search"),
    ],
)
def test_what_is_done_already_is_not_advised_again(expose: dict[str, str], words: str) -> None:
    """Issue 20, item 7: the costliest tools with what to do about each."""
    assert words in advice_on_definition(COST, ExposeSettings.model_validate(expose))


def test_a_form_that_saves_little_is_not_advised() -> None:
    assert "expose.hide" in advice_on_definition({**COST, "slim": 950}, ExposeSettings())


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"recalled": 900, "saved": 100}, "results.budget"),
        ({"shown": 5000}, "results.threshold"),
        ({"calls": 50, "shown": 500}, 'cache = "60s"'),
        ({}, NOTHING),
    ],
)
def test_results_are_judged_by_what_makes_them_dear(row: dict[str, int], words: str) -> None:
    assert words in advice_on_results({**ROW, **row})
