"""What becomes of calls in flight when a program with a bridge gets SIGTERM (docs/how-to/library.md)."""

import asyncio
import os
import signal
import sys

import pytest

from support.harness import Place, eventually, python_server

PROGRAM = """
import asyncio, signal, sys
from mcpbridge import Bridge

async def main():
    stop = asyncio.Event()
    if sys.argv[3] == "handled":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Bridge.open(sys.argv[1], remember=False) as bridge:
        call = asyncio.create_task(bridge.call_tool("gated__pass_gate", {"gate": sys.argv[2]}))
        await stop.wait()
        print("stopping", flush=True)
        print((await call).text, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["handled", "unhandled"])
async def test_calls_end_first_where_the_program_waits_for_them(place: Place, how: str) -> None:
    config = place.config({"gated": python_server("gated")}, store={"path": str(place.folder / "s.db")})
    gate = place.folder / "gate"
    os.mkfifo(gate)
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(config), str(gate), how),
        stdout=asyncio.subprocess.PIPE,
        cwd=place.folder,
        env=place.environment(),
        start_new_session=True,
    )
    try:
        assert program.stdout
        async with asyncio.timeout(120):
            opened = await asyncio.to_thread(gate.open, "wb")  # returns when the server waits: the call is in flight
            program.send_signal(signal.SIGTERM)
            if how == "handled":
                assert await program.stdout.readline() == b"stopping\n"
                opened.close()
                assert await program.stdout.read() == b"passed\n"
                assert await program.wait() == 0
            else:
                assert await program.stdout.read() == b""
                assert await program.wait() == -signal.SIGTERM
                opened.close()

        async def left() -> dict[int, str]:
            return place.survivors()

        await eventually(left, lambda found: not found, within=60)
    finally:
        place.kill_survivors()
        await program.wait()
