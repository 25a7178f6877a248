"""An agent that books a trip, and what people decide on the way; it may end and go on as another process.

    python trip.py ask "Take me from Bern to Rome on Friday."     asks the model, until it is done or waits for somebody
    python trip.py waiting                                        shows what it waits for
    python trip.py answer ID 12A                                  answers a paused call, and goes on
    python trip.py approve ID                                     agrees to a call, and goes on
    python trip.py deny ID

With `--api anthropic` the model is one of Anthropic's. The history is kept in `trip.json`, the rest in the store.
"""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mcpbridge import (
    AnthropicModel,
    Bridge,
    CallProgress,
    CallReturned,
    Context,
    OpenAIModel,
    PausedCall,
    Result,
    RunOutcome,
    ToolBuilder,
    ToolResult,
    human_tool,
    tool,
)

HISTORY = Path("trip.json")
RUN = "trip"


class Seen(BaseModel):
    """What `find_trains` remembers of the run."""

    destinations: list[str] = []


class Connection(BaseModel):
    """A train, and what it costs."""

    train: str
    price: float
    minutes: int


TRAINS = [
    Connection(train="EC 35", price=89.0, minutes=410),
    Connection(train="EC 37", price=129.0, minutes=385),
    Connection(train="NJ 40", price=159.0, minutes=720),
]


@tool
async def find_trains(seen: Context[Seen], origin: str, destination: str) -> AsyncIterator[str | Result[Any]]:
    """Find trains between two cities."""
    for done, train in enumerate(TRAINS, 1):
        yield f"looked at {train.train} ({done} of {len(TRAINS)})"
    seen.update(destinations=[*seen.value.destinations, destination])
    cheapest = min(TRAINS, key=lambda train: train.price)
    found = (
        f"{len(TRAINS)} trains from {origin} to {destination}, the cheapest is {cheapest.train} for {cheapest.price}"
    )
    # The model reads a line; the program gets the rows, for its own page.
    yield Result(ToolResult(found, artifacts=[train.model_dump() for train in TRAINS]))


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return {"Rome": "sunny, 24 °C", "Bern": "rain, 11 °C"}.get(city, "unknown")


def book_train(train: str, price: float) -> str:
    return f"{train} is booked for {price}"


book = (
    ToolBuilder("book")
    .description("Book a train.")
    .param("train", str, "its name", required=True)
    .param("price", float, "in francs", required=True)
    .risk_level("high")
    .requires_approval(lambda arguments: f"{arguments['price']} francs" if arguments["price"] > 100 else False)
    .handler(book_train)
    .build()
)


def ask_for_seat(train: str) -> str | None:
    """Let the traveller choose a seat in a train."""
    return "any seat will do: the night train has beds" if train.startswith("NJ") else None


def seat_chosen(seat: str) -> str:
    return f"The traveller chose seat {seat}."


choose_seat = human_tool(ask_for_seat, seat_chosen, name="choose_seat", reason="Which seat?")


def opened() -> Bridge:
    config = {"servers": {"time": {"command": ".venv-servers/bin/mcp-server-time"}}}
    return Bridge.open(config, tools=[find_trains, weather, book, choose_seat])


async def go_on(bridge: Bridge, api: str, messages: list[Any]) -> None:
    """Let the model work until it is done, or somebody has to decide."""
    model = AnthropicModel(model="claude-sonnet-4-5") if api == "anthropic" else OpenAIModel(model="gpt-5")
    run = bridge.run(model, messages, run=RUN, max_rounds=20)
    async for event in run:
        match event:
            case CallProgress(call=call, message=message):
                print(f"  {call.name}: {message}")
            case CallReturned(result=result):
                print(f"{result.call.name if result.call else ''} -> {result.text}")
                if result.artifacts:
                    print(f"  for the program alone: {len(result.artifacts)} rows")
            case _:
                pass
    show(run.outcome)


def show(outcome: RunOutcome) -> None:
    HISTORY.write_text(json.dumps(list(outcome.messages)))
    for call in outcome.paused:
        print(waiting(call))
    if outcome.status != "paused":
        print(outcome.text)


def waiting(call: PausedCall) -> str:
    return f"waiting [{call.kind}] {call.id}: {call.tool} {dict(call.arguments)} {call.reason}"


async def main(options: argparse.Namespace) -> None:
    async with opened() as bridge:
        match options.what:
            case "waiting":
                for call in await bridge.paused_calls(run=RUN):
                    print(waiting(call))
                for pending in await bridge.pending_approvals():
                    print(f"waiting [approval] {pending.request.id}: {pending.request.tool} {pending.request.reason}")
            case "ask":
                await go_on(bridge, options.api, [{"role": "user", "content": " ".join(options.rest)}])
            case "answer":
                await bridge.resume(options.rest[0], " ".join(options.rest[1:]))
                await go_on(bridge, options.api, kept())
            case "approve":
                await bridge.approve(options.rest[0])
                await go_on(bridge, options.api, kept())
            case _:
                await bridge.deny(options.rest[0])
                await go_on(bridge, options.api, kept())


def kept() -> list[Any]:
    """The history as the process before this one left it."""
    return json.loads(HISTORY.read_text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--api", choices=["openai", "anthropic"], default="openai")
    parser.add_argument("what", choices=["ask", "waiting", "answer", "approve", "deny"])
    parser.add_argument("rest", nargs="*")
    asyncio.run(main(parser.parse_args()))
