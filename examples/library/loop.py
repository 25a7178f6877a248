"""Runs without a service: any async function is a model. Here it follows a script, as chat completions speak."""

import asyncio
import json
from typing import Any

from mcpbridge import (
    Bridge,
    CallRefused,
    CallReturned,
    CallStarted,
    ModelRequest,
    Prepared,
    ToolCall,
    Turn,
    human_tool,
    manual_tool,
    tool,
)

Message = dict[str, Any]


@tool
def price(item: str) -> float:
    """Say what something costs."""
    return {"tea": 4.5, "milk": 1.2}[item]


@tool(requires_approval=True)
def buy(item: str) -> str:
    """Buy something."""
    return f"bought {item}"


measure = manual_tool("measure", description="Have the kitchen measured.", reason="How wide is it, in cm?", returns=int)


def ask_colour(item: str) -> str | None:
    """Let the user choose a colour."""
    return "white" if item == "milk" else None  # None: somebody has to be asked


def colour_chosen(colour: str) -> str:
    return f"The user wants {colour}."


choose_colour = human_tool(ask_colour, colour_chosen, name="choose_colour")


def wants(*calls: tuple[str, Message], text: str = "") -> Message:
    """A response of chat completions."""
    made = [
        {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for name, arguments in calls
    ]
    message = {"role": "assistant", "content": text or None, **({"tool_calls": made} if made else {})}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if made else "stop"}]}


async def shopper(request: ModelRequest) -> Message:
    """A model: gets messages and tools, returns a response."""
    answered = [message for message in request.messages if message["role"] == "tool"]
    match len(answered):
        case 0:
            return wants(("price", {"item": "tea"}), ("price", {"item": "milk"}), text="Let me see.")
        case 2:
            return wants(("buy", {"item": "tea"}), ("choose_colour", {"item": "tea"}), ("measure", {}))
        case _:
            return wants(text="; ".join(str(message["content"]) for message in answered[2:]))


QUESTION: list[Message] = [{"role": "user", "content": "Tea and milk, please."}]


async def pause_and_go_on() -> None:
    tools = [price, buy, choose_colour, measure]
    async with Bridge.open({}, tools=tools) as bridge:
        run = bridge.run(shopper, QUESTION, tools=tools, run="shopping")
        async for event in run:
            match event:
                case CallStarted(call=call):
                    print("calls", call.name, call.arguments)
                case CallReturned(result=result) if result.call is not None:
                    print(result.call.name, "gave", result.text)
                case _:
                    pass
        print(run.outcome.status, [call.kind for call in run.outcome.paused])
        dear = [call.id for call in run.outcome.paused if call.kind == "approval"]
        kept = json.dumps([run.outcome.messages, dear])  # what the program keeps itself

    async with Bridge.open({}, tools=tools) as bridge:  # days later, in another process
        history, dear = json.loads(kept)
        answers = {"tools/choose_colour": "green", "tools/measure": 240}
        for call in await bridge.paused_calls(run="shopping"):
            await bridge.resume(call.id, answers[call.tool])
        for one in dear:
            await bridge.approve(one)
        outcome = await bridge.run(shopper, history, tools=tools, run="shopping")
        print(outcome.status, outcome.text)


def refuse_milk(call: ToolCall[Any, Any]) -> None:
    if call.arguments.get("item") == "milk":
        raise CallRefused("No milk today.")


def remind(turn: Turn) -> Prepared | None:
    if turn.round == 0:
        return Prepared(messages=[{"role": "system", "content": "Be brief."}, *turn.messages])
    return None


async def keep_it_short() -> None:
    async with Bridge.open({}, tools=[price, buy]) as bridge:
        outcome = await bridge.run(
            shopper,
            QUESTION,
            tools=lambda turn: [price] if turn.round == 0 else [price, buy],  # anew for each round
            max_rounds=5,
            stop_when=lambda turn: turn.elapsed > 60 or any(call.name == "price" for call in turn.calls),
            prepare=remind,
            on_call=refuse_milk,
        )
        print(outcome.status, len(outcome.turns), [result.text for result in outcome.results])


async def by_hand() -> None:
    async with Bridge.open({}, tools=[price]) as bridge:
        offered = await bridge.tools_for("openai", tools=[price], strict=True)
        print(offered[0]["function"]["strict"], dict(offered.not_strict))
        response = await shopper(ModelRequest(QUESTION, offered, run="", round=1))
        results = await bridge.run_tool_calls(bridge.calls_from(response, offered))
        print([message["content"] for message in bridge.results_for("openai", results)])


async def main() -> None:
    await pause_and_go_on()
    await keep_it_short()
    await by_hand()


if __name__ == "__main__":
    asyncio.run(main())
