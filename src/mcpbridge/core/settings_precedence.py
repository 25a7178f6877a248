"""Which setting wins for one tool: `[servers.NAME.tool.TOOL]`, then `[servers.NAME]`, then `[calls]`, then the default.

The same order holds for `results`. Where no level says whether a tool reads, writes or destroys, its own hints and its
name are asked: a server that is not trusted is believed only what speaks against its tool. Pure.
"""

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache
from typing import TypeVar

from mcpbridge.base.units import Rate
from mcpbridge.core.call_options import DEFAULT_RESULTS, NO_RETRY, CallOptions, Effect, Hints, ResultOptions
from mcpbridge.core.call_settings import CALL_SECONDS, LOCAL_SECONDS, CallDefaults, CallSettings, Risk, call_deadlines
from mcpbridge.core.result_settings import BUDGET, THRESHOLD, ResultSettings


def result_options(*levels: ResultSettings | None) -> ResultOptions:
    """The result options of a tool; `levels` are those of the tool, of its server and of all, in this order."""
    chosen: dict[str, object] = {}
    for level in levels:
        if level is not None:
            for name in ResultSettings.model_fields:
                if name not in chosen and (value := getattr(level, name)) is not None:
                    chosen[name] = value
    budget = chosen.get("budget", BUDGET)
    assert isinstance(budget, int)
    options = {_RESOLVED.get(name, name): value for name, value in chosen.items()}
    options.setdefault("threshold", max(THRESHOLD, budget))
    return ResultOptions(**options)  # pyright: ignore[reportArgumentType] - checked by the models


_RESOLVED = {"preview_items": "items", "auto_store": "stores", "code_transform": "transforms"}

_T = TypeVar("_T")


def resolve(
    name: str,
    hints: Hints,
    *,
    tool: CallSettings | None,
    server: CallSettings | None,
    calls: CallDefaults,
    is_trusted: bool,
    limits: tuple[int, Rate | None, Rate | None] = (0, None, None),
    is_local: bool = False,
    is_own_function: bool = False,
    results: ResultOptions = DEFAULT_RESULTS,
) -> CallOptions:
    """The options of one tool. `name`: the server's own; `limits`: its `max_concurrent`, `rate_limit`, the server's.

    `is_own_function`: a function of whoever runs the bridge. Its calls run one at a time only where it is annotated so:
    its name was chosen for people, and its author can say what it does.
    """
    levels = [level for level in (tool, server, calls) if level is not None]
    own = [level for level in (tool, server) if level is not None]

    def nearest(key: str, default: _T) -> _T:
        for level in levels:
            if (value := getattr(level, key)) is not None:
                return value
        return default

    spellings = _snake_case(name)
    read_only = _believed_claim(nearest("read_only", None), hints.read_only, is_trusted, believed=False)
    effect: Effect = "read" if read_only else "unknown" if read_only is None else "write"
    if read_only is None and (_matches(spellings, calls.write_names) or _matches(spellings, calls.destructive_names)):
        effect = "write"
    destructive = _believed_claim(nearest("destructive", None), hints.destructive, is_trusted, believed=True)
    is_annotated = read_only is False or (bool(destructive) and not read_only)
    if destructive is None:
        destructive = _matches(spellings, calls.destructive_names)
    destructive = destructive and not read_only
    effect = "write" if destructive else effect
    idempotent = bool(_believed_claim(nearest("idempotent", None), hints.idempotent, is_trusted, believed=None))
    guessed: Risk = "high" if destructive else "low" if effect == "read" else "medium"
    idle = nearest("call_timeout", LOCAL_SECONDS if is_local else CALL_SECONDS)
    has_own_time = is_local or any(
        level.call_timeout is not None or level.max_call_timeout is not None for level in own[:1] if level is tool
    )
    return CallOptions(
        permission=nearest("permission", "allow"),
        risk=nearest("risk", guessed),
        effect=effect,
        seems_read=effect == "unknown" and _matches(spellings, calls.read_names),
        is_destructive=destructive,
        is_idempotent=idempotent or (bool(read_only) and nearest("idempotent", default=True)),
        arguments=nearest("arguments", "coerce"),
        inject_defaults=nearest("inject_defaults", default=True),
        timeouts=call_deadlines(idle, nearest("max_call_timeout", None)) if has_own_time else None,
        late=nearest("late", "keep"),
        retry=nearest("retry", NO_RETRY),
        cache=_cache_seconds(effect, tool, nearest("cache", 0.0)),
        is_cache_shared=nearest("cache_scope", "private") == "shared",
        is_serial=(is_annotated if is_own_function else effect == "write")
        and nearest("side_effects", "serial") == "serial",
        max_concurrent=limits[0],
        rate_limit=limits[1],
        server_rate_limit=limits[2],
        redact=tuple(nearest("redact", ())),
        redact_arguments=tuple(nearest("redact_arguments", ())),
        log_content=nearest("log_content", None),
        results=results,
    )


def _cache_seconds(effect: Effect, tool: CallSettings | None, seconds: float) -> float:
    """Seconds that results are kept. What writes never; what may write only if that is said of the tool itself."""
    is_cacheable = effect == "read" or (effect == "unknown" and tool is not None and tool.cache is not None)
    return seconds if is_cacheable else 0.0


def _believed_claim(
    configured: bool | None, hint: bool | None, is_trusted: bool, *, believed: bool | None
) -> bool | None:
    """What is known of one claim. A server that is not trusted is `believed` only what speaks against its tool."""
    if configured is not None:
        return configured
    return hint if is_trusted or (hint is not None and hint is believed) else None


def _matches(spellings: Sequence[str], globs: Sequence[str]) -> bool:
    matches = _pattern(tuple(globs)).fullmatch
    return any(matches(name) for name in spellings)


@lru_cache(maxsize=64)
def _pattern(globs: tuple[str, ...]) -> re.Pattern[str]:
    """One pattern for all. `create` alone counts as `create_*`."""
    either = [*globs, *(glob.removesuffix("_*") for glob in globs)]
    return re.compile("|".join(translate(glob) for glob in dict.fromkeys(either))) if globs else _NOTHING


_NOTHING = re.compile(r"(?!)")
_NEW_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-. ]")
_NAMESPACE = re.compile(r"[./:]")


def _snake_case(name: str) -> tuple[str, ...]:
    """`createIssue` and `create-issue` as `create_issue`; of `github.createIssue` also what stands behind the dot."""
    last = _NAMESPACE.split(name)[-1]
    whole = _NEW_WORD.sub("_", name).lower()
    return (whole,) if last == name else (whole, _NEW_WORD.sub("_", last).lower())
