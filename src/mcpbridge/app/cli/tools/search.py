"""`mcpbridge search`: which tools are found for what somebody wants, as `find_tools` answers it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from mcpbridge.app.cli.options import as_json_option, config_option, standalone_option
from mcpbridge.app.cli.output import print_json, print_text, visible
from mcpbridge.app.cli.tools.run_session import run
from mcpbridge.app.cli.tools.session import Session

_DETAILS = ("names", "signatures", "schemas")


@click.command("search")
@click.argument("words", metavar="QUERY...", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 50), metavar="N", help="At most N tools (default: `search.limit`).")
@click.option("--detail", type=click.Choice(_DETAILS), default="signatures", help="How much to show of each tool.")
@click.option("--server", metavar="NAME", help="Search this server alone.")
@click.option("--profile", metavar="NAME", help="Only what belongs to this profile.")
@click.option("--explain", "explains", is_flag=True, help="Also show what made the score of each tool.")
@config_option
@as_json_option
@standalone_option
def search_command(
    *,
    words: tuple[str, ...],
    limit: int | None,
    detail: str,
    server: str | None,
    profile: str | None,
    explains: bool,
    config: str | None,
    as_json: bool,
    standalone: bool,
) -> int:
    """Find tools by what they do, as `find_tools` answers a model.

    server:NAME and tag:NAME among the words narrow the search. Exit code 5: no tool seems to do that.

    \u0008
    Examples:
      mcpbridge search 'create an issue'
      mcpbridge search 'create an issue server:git*' --limit 3
    """
    query = " ".join(words).encode(errors="replace").decode()  # arguments may be any bytes
    if not query.strip():
        raise click.UsageError("Say what the tool should do, in a few words.")

    async def searching(session: Session) -> int:
        found = await session.ask(
            "search",
            query=query,
            limit=limit,
            detail=detail,
            server=server or "",
            profile=profile or "",
            explain=explains,
        )
        if as_json:
            told = {"query": query, "fits": found["fits"], "tools": found["tools"]}
            print_json("search/1", told if found["fits"] else {**told, "nearest": found["nearest"]})
        else:
            print_text(found["text"])
            for line in _explained(found.get("nearest") or found["tools"]) if explains else ():
                print_text(visible(line))
        return found["code"]

    return run(searching, config, standalone=standalone, as_json=as_json, servers=[server] if server else None)


def _explained(tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What made the scores: the points add up to them."""
    for tool in tools:
        yield f"{tool['score']:.3f} {tool['id']}: {why_line(tool.get('why') or {})}"


def why_line(why: Mapping[str, Any]) -> str:
    """One explanation of `search_document`, on a line."""
    if "words" not in why:
        return "named in the query" if why.get("named") else "passes the filters"
    parts = [_word(word) for word in why["words"]]
    vectors = why["vectors"]
    near = ", ".join(f"{word} {nearness:.2f}" for word, nearness in vectors["words"][:3])
    parts.append(f"vectors {vectors['points']:.3f}{f' (near: {near})' if near else ''}")
    parts += [f"asked for {why['asked']:.3f}", f"name {why['name']:.3f}"]
    if "model" in why:
        parts.append(f"model {why['model']['points']:.3f}")
    if "feedback" in why:
        parts.append(f"used before {why['feedback']:.3f}")
    of = f" [for: {why['part'][:80]}]" if why["part"] else ""
    return "; ".join(parts) + of


def _word(word: Mapping[str, Any]) -> str:
    implied = "implied, " if word["implied"] else ""
    return f"{word['word']} {word['points']:.3f} ({implied}{', '.join(word['in'])})"
