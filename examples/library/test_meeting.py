"""A test of a program that uses servers: recorded once in `meeting.jsonl`, replayed from then on without any server."""

from pathlib import Path

from mcpbridge import Bridge, Cassette

CONFIG = {"servers": {"time": {"command": ".venv-servers/bin/mcp-server-time"}}}
RECORDED = Path(__file__).parent / "meeting.jsonl"


async def meeting_in_tokyo(bridge: Bridge, time: str) -> str:
    """The program."""
    asked = {"source_timezone": "Europe/Zurich", "target_timezone": "Asia/Tokyo", "time": time}
    result = await bridge.call_tool("time/convert_time", asked)
    return result.value["target"]["datetime"][11:16]


async def test_a_meeting_at_nine_is_in_the_afternoon() -> None:
    cassette = Cassette(RECORDED)  # mode="record" records anew
    async with Bridge.open(CONFIG, cassette=cassette) as bridge:
        assert await meeting_in_tokyo(bridge, "09:00") in ("16:00", "17:00")
    assert cassette.unmatched == []  # asked for nothing else
