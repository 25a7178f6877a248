"""The page about the way of a call has the stages in the order in which calls pass them (issue 18)."""

import re
from pathlib import Path

from mcpbridge import Bridge
from mcpbridge.pipeline.plan import STAGE_NAMES

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "calls.md"

DOCUMENTED = {
    "counted": ["Observe"],
    "notified": ["LostMemory"],
    "shortened": ["Compress"],
    "denied": ["DenyByTool"],
    "references": ["References"],
    "original names": ["OriginalNames"],
    "hooks": ["Hooks"],
    "arguments": ["ValidateArguments"],
    "unchanged": ["HeldDefinition"],
    "permitted": ["DecideByArguments"],
    "trifecta": ["LethalTrifecta"],
    "budgets, rates": ["CallBudget", "RateLimit"],
    "approved": ["Approval"],
    "late": ["AbandonedCalls"],
    "cached": ["Cache"],
    "timed": ["Deadline"],
    "tried again": ["Retry"],
    "in its place": ["ConcurrencyLimit"],
    "redacted": ["Redact"],
}
"""What the page calls each stage."""
UNDOCUMENTED = {"RecordRunning"}
"""What changes nothing for a call."""


async def test_the_page_has_the_stages_in_the_order_of_the_code() -> None:
    async with Bridge.open({}, remember=False) as bridge:
        stages = [type(stage).__name__ for stage in bridge._shared.calls.plans._plain._factories]
    table = PAGE.read_text("utf-8").partition("| stage | what it does |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| \*\*([^*]+)\*\* \|", table, re.MULTILINE)
    assert [name for row in rows for name in DOCUMENTED[row]] == [name for name in stages if name not in UNDOCUMENTED]
    assert {one.__name__ for one in STAGE_NAMES} <= {*stages}, "each stage that has a name for people is in the plan"
