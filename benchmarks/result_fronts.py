"""What clients are given by programs: the bridge and other bridges in front of a server that returns the payloads."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.clients import CallFailed
from benchmarks.result_rules import Answer, Payload
from benchmarks.running import start
from benchmarks.subjects import Bridge, Compressor, Launch, Site, Subject, Unsupported, Upstream

__all__ = ["Headroom", "Shrinking", "served_by", "through_bridge"]

_WHOLE = ("whole", "as sent", "minified", "table")
"""Forms of the bridge that say everything."""


def through_bridge(
    bridge: Bridge, server: Upstream, payloads: Sequence[Payload], budget: int, work: Path
) -> list[Answer]:
    """What the bridge gives. Raises Unsupported, CallFailed."""
    configured = bridge.configured(sections=f"[results]\nbudget = {budget}")
    return served_by(configured, server, payloads, work)


def served_by(subject: Subject, server: Upstream, payloads: Sequence[Payload], work: Path) -> list[Answer]:
    """What a client of this subject is given for each payload. Raises Unsupported, CallFailed."""
    running = start(subject, "stdio", [server], work / subject.name)
    try:
        running.await_tools(len(payloads))
        return [
            _answer(running.client.request("tools/call", running.params(f"get_{payload.name}", {})), payload)
            for payload in payloads
        ]
    finally:
        running.stop()


def _answer(result: dict[str, Any], payload: Payload) -> Answer:
    if result.get("isError"):
        raise CallFailed(f"{payload.name}: {json.dumps(result)[:200]}")
    texts = [block.get("text", "") for block in result["content"]]
    if "structuredContent" in result:
        texts.append(json.dumps(result["structuredContent"], ensure_ascii=False))
    told = (result.get("_meta") or {}).get("mcpbridge/result") or {}
    text = "\n".join(texts)
    return Answer(text, whole=payload.text in text or told.get("form") in _WHOLE)


_LEAST = 1024
"""Characters that mcp-compressor shortens to at least."""


class Shrinking(Compressor):
    """mcp-compressor with `--shrinkfit`, which shortens results to so many characters."""

    name = "mcp-compressor --shrinkfit"

    def __init__(self, environments: Path, budget: int) -> None:
        super().__init__(environments)
        self._budget = budget

    def launch(self, site: Site, upstreams: Sequence[Upstream]) -> Launch:
        if self._budget < _LEAST:
            raise Unsupported(f"shortens to {_LEAST:,} characters at least, not {self._budget:,}")
        plain = super().launch(site, upstreams)
        program, *rest = plain.argv
        return replace(plain, argv=(program, f"--shrinkfit={self._budget}", *rest))


_COMPRESS = """\
import json, sys
from headroom import compress

for line in sys.stdin:
    text = json.loads(line)
    call = {"id": "c1", "type": "function", "function": {"name": "get", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Get it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ]
    done = compress(messages, model="gpt-4o", protect_recent=0, kompress_model="disabled")
    print("\\x1e" + json.dumps(done.messages[-1]["content"]), flush=True)
"""


class Headroom(Compressor):
    """headroom-ai's `compress`, without its language models. It has no budget."""

    name, package, pinned = "headroom-ai", "headroom-ai", "0.42.0"

    def answers(self, payloads: Sequence[Payload], work: Path) -> list[Answer]:
        """What it makes of each payload. Raises Unsupported."""
        folder = work / self.name
        folder.mkdir(parents=True, exist_ok=True)
        env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
        given = "".join(json.dumps(payload.text) + "\n" for payload in payloads)
        try:
            done = subprocess.run(
                [self._program("python"), "-c", _COMPRESS],
                input=given, capture_output=True, text=True, timeout=120, check=False, env=env, cwd=folder,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise Unsupported("did not end within 120 s") from error
        # Not `splitlines`, for which the mark itself ends a line.
        texts = [json.loads(line[1:]) for line in done.stdout.split("\n") if line.startswith("\x1e")]
        if len(texts) != len(payloads):
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise Unsupported(f"made {len(texts)} of {len(payloads)}: {last[:200]}")
        return [Answer(text, whole=text == payload.text) for text, payload in zip(texts, payloads, strict=True)]
