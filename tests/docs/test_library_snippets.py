"""What the pages show of the library is true: each block is a part of an example, and every example is run (issue 9).

The first line of a block names the file that it is a part of: ```python examples/library/loop.py. The examples are run
in this process; `agent.py` and `trip.py` have tests of their own.
"""

import asyncio
import re
import runpy
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "examples/library"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
OF_THE_LIBRARY = ("agents.md", "library.md")
SERVERS = ROOT / ".venv-servers"
ELSEWHERE = {"agent.py", "trip.py"}
"""Run by `test_library_examples.py`."""

_FENCE = re.compile(r"^```python([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    file: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


BLOCKS = [
    Block(page, text.count("\n", 0, found.start()) + 1, found[1].strip(), found[2])
    for page, text in ((page, page.read_text("utf-8")) for page in PAGES)
    for found in _FENCE.finditer(text)
]
PARTS = [block for block in BLOCKS if "/" in block.file]


@pytest.mark.parametrize("block", PARTS, ids=str)
def test_a_block_is_a_part_of_the_file_that_it_names(block: Block) -> None:
    text = (ROOT / block.file).read_text("utf-8")
    indented = (textwrap.indent(block.text, " " * spaces) for spaces in (0, 4, 8, 12))
    assert any(f"\n{part}" in f"\n{text}" for part in indented), f"{block.file} has no such lines"


def test_every_block_of_these_pages_names_a_file_that_is_run() -> None:
    of_pages = [block for block in BLOCKS if block.page.name in OF_THE_LIBRARY]
    assert of_pages
    assert [str(block) for block in of_pages if block not in PARTS] == []
    run = {*SAID, *ELSEWHERE, "test_meeting.py"}
    assert {Path(block.file).name for block in PARTS} <= run
    assert {path.name for path in FOLDER.glob("*.py")} == run


def test_the_tutorial_shows_the_whole_agent() -> None:
    """Issue 9: from nothing to an agent over two servers in under 40 lines."""
    agent = (FOLDER / "agent.py").read_text("utf-8")
    assert [block.text for block in PARTS if block.text == agent and block.page.name == "library.md"] == [agent]
    assert len(agent.splitlines()) < 40


SAID = {
    "hello.py": """\
time/convert_time Convert time between timezones
time/get_current_time Get current time in a specific timezone
ASIA/TOKYO!
""",
    "everyday.py": """\
['time']
config: servers.time.comand: unknown key
  Did you mean `command`?
time/convert_time time__convert_time ['source_timezone', 'time', 'target_timezone']
time/get_current_time time__get_current_time ['timezone']
+9.0h
True …Mars…
Unknown tool: time/convert_tim (did you mean time__convert_time?)
True True
[1939,1842,1745]
2000
hello Ann
False
True
False
9 time/convert_time
""",
    "own_tools.py": """\
9.0
shelf 1
shelf 2
24 things ({'shelf': 1, 'things': 12}, {'shelf': 2, 'things': 12})
asked about tools/refund 80 francs
80.0 francs for A7, late
['sugar']
True order was not called: its arguments do not fit its schema.
Basket(items=['a bag', 'tea', 'milk'])
{'last': 'milk'}
""",
    "loop.py": """\
calls price {'item': 'tea'}
calls price {'item': 'milk'}
price gave …
price gave …
calls buy {'item': 'tea'}
calls choose_colour {'item': 'tea'}
calls measure {}
paused ['approval', 'human', 'manual']
done bought tea; The user wants green.; 240
stopped 1 ['4.5', 'No milk today.']
True {}
['4.5', '1.2']
""",
    "sync.py": """\
['time/convert_time', 'time/get_current_time']
UTC
coffee
done in round 1
""",
}
"""What each example prints; … stands for any text of a line."""


@pytest.mark.skipif(not SERVERS.exists(), reason="`make example` installs the servers of the examples")
@pytest.mark.parametrize("name", SAID)
def test_an_example_says_what_it_should(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER if name == "hello.py" else ROOT)
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    said = capsys.readouterr().out
    assert re.fullmatch(re.escape(SAID[name]).replace("…", ".*"), said), said


def test_the_test_of_a_program_needs_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(FOLDER / "test_meeting.py"))
    assert names["RECORDED"].exists()
    asyncio.run(names["test_a_meeting_at_nine_is_in_the_afternoon"]())
