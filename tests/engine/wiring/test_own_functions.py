"""Functions of whoever runs the bridge run side by side, unless annotations say that they change something."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import fail_after, lowlevel

from mcpbridge import Bridge, tool

WRITES = [
    "add_note",
    "addNote",
    "add-note",
    "create_report",
    "delete_note",
    "remove_all",
    "send_mail",
    "set_title",
    "update_row",
    "run_job",
    "pay_bill",
    "drop_table",
]


class Meeting:
    """A function of which each call waits until another one runs as well."""

    def __init__(self) -> None:
        self.began, self.both = 0, anyio.Event()

    async def __call__(self) -> str:
        """Meet another call."""
        self.began += 1
        if self.began == 2:
            self.both.set()
        await self.both.wait()
        return "met"


class Alone:
    """A function that notes how many calls of it ran at a time."""

    def __init__(self) -> None:
        self.running = self.most = 0

    async def __call__(self) -> str:
        """Note who else is here."""
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(100):
            await lowlevel.checkpoint()
        self.running -= 1
        return "done"


async def call_twice(bridge: Bridge, *names: str) -> None:
    with fail_after(30):
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(bridge.call_tool, name)


@pytest.mark.parametrize("name", WRITES)
async def test_the_name_of_a_function_does_not_make_it_wait(name: str) -> None:
    meets = Meeting()

    async def meet() -> str:
        return await meets()

    async with Bridge.open({}, tools=[tool(name=name)(meet)], remember=False) as bridge:
        await call_twice(bridge, name, name)
    assert meets.began == 2


async def test_two_functions_that_seem_to_change_something_do_not_wait_for_each_other() -> None:
    meets = Meeting()

    async def add_note() -> str:
        return await meets()

    async def delete_note() -> str:
        return await meets()

    async with Bridge.open({}, tools=[add_note, delete_note], remember=False) as bridge:
        await call_twice(bridge, "add_note", "delete_note")


@pytest.mark.parametrize("annotations", [{"readOnlyHint": False}, {"destructiveHint": True}])
@pytest.mark.parametrize("name", ["add_note", "look"])
async def test_what_is_annotated_as_changing_something_takes_turns(name: str, annotations: dict[str, Any]) -> None:
    alone = Alone()

    async def note() -> str:
        return await alone()

    async with Bridge.open({}, tools=[tool(name=name, annotations=annotations)(note)], remember=False) as bridge:
        await call_twice(bridge, name, name, name)
    assert alone.most == 1


@pytest.mark.parametrize("name", ["add_note", "delete_note"])
async def test_a_function_that_only_reads_never_waits(name: str) -> None:
    meets = Meeting()

    async def meet() -> str:
        return await meets()

    made = tool(name=name, annotations={"readOnlyHint": True})(meet)
    async with Bridge.open({}, tools=[made], remember=False) as bridge:
        await call_twice(bridge, name, name)


MODULE = """
import threading
barrier = threading.Barrier(2, timeout=30)
def add_note() -> str:
    barrier.wait()
    return "met"
class Delete:
    def execute(self) -> str:
        barrier.wait()
        return "met"
"""


@pytest.mark.parametrize(
    "table", [{"function": "own_notes:add_note"}, {"executor_class": "own_notes.Delete"}], ids=["function", "class"]
)
async def test_functions_of_the_configuration_are_no_different(tmp_path: Path, table: dict[str, Any]) -> None:
    (tmp_path / "own_notes.py").write_text(MODULE)
    name, (key, reference) = "delete_note", next(iter(table.items()))
    config = tmp_path / "servers.toml"
    config.write_text(f'[tools.{name}]\n{key} = "{reference}"\n')
    async with Bridge.open(config, remember=False) as bridge:
        await call_twice(bridge, name, name)


async def test_rules_see_the_name_all_the_same() -> None:
    """Only whether calls wait for one another is decided without it: permissions are not weaker for it."""

    async def delete_note() -> str:
        return "deleted"

    rules = {"permissions": [{"destructive": True, "permission": "deny"}]}
    async with Bridge.open(rules, tools=[delete_note], remember=False) as bridge:
        result = await bridge.call_tool("delete_note")
        assert result.is_error
        assert "denied" in result.text
