"""What can be set for a tool of a program besides its function, as settings of tools have it.

`needs_approval` may be a function of the arguments. It runs where the policy decides: after the stage that completes
the arguments, so it sees them as the tool gets them. Its answer goes the way of all approvals. A rule of `permissions`
that allows the call comes before it.
"""

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from mcpbridge.base.errors import CallRefused, ConfigError, NotPermitted
from mcpbridge.base.log import get_logger
from mcpbridge.base.suggestions import nearest
from mcpbridge.core.call_settings import Label, Risk
from mcpbridge.core.model import Asks, Call

if TYPE_CHECKING:
    from mcpbridge.core.model import Asks
    from mcpbridge.tools.python.settings import FunctionSettings
    from mcpbridge.tools.settings import BackendSettings


log = get_logger("mcpbridge.library")

ApprovalRule = Callable[[Mapping[str, Any]], "bool | str | Awaitable[bool | str]"]
"""From the arguments of a call (JSON values by name) to whether a person must agree; a text is the reason that people
are notified. It runs on the event loop, so one that is not `async` must be quick. If it raises, or takes longer than
ten seconds, the call is refused."""

SECONDS = 10.0
"""How long it may take."""
REASON = "the tool asks for it"
"""What people see where it gives no reason."""


def asking(tool: str, rule: bool | ApprovalRule) -> Asks | None:
    """What decides for the calls of a tool whether a person must agree; None: nobody must."""
    if not callable(rule):
        return _always if rule else None

    def asks(call: Call) -> str | Awaitable[str]:
        try:
            found = rule(_arguments_of(tool, call))
        except CallRefused:
            raise
        except Exception as error:
            raise _refused(tool, error) from error
        return _awaited(tool, found) if inspect.isawaitable(found) else _reason(tool, found)

    return asks


def _always(_: Call) -> str:
    return REASON


def _arguments_of(tool: str, call: Call) -> dict[str, Any]:
    from mcpbridge.pipeline.validation.json_text import refuse_doubles
    from mcpbridge.tools.python.signature import decoded

    raw = call.params.get("arguments")
    refuse_doubles(tool, raw)  # the function would see one of the two
    return decoded(bytes(raw)) if raw is not None else {}


async def _awaited(tool: str, answer: Awaitable[object]) -> str:
    try:
        async with asyncio.timeout(SECONDS):
            return _reason(tool, await answer)
    except CallRefused:
        raise
    except Exception as error:
        raise _refused(tool, error) from error


def _reason(tool: str, answer: object) -> str:
    if isinstance(answer, bool):
        return REASON if answer else ""
    if isinstance(answer, str):
        return answer
    raise _refused(tool, TypeError(f"expected a bool or a text, not {type(answer).__name__}"))


def _refused(tool: str, error: Exception) -> NotPermitted:
    """What an error says may hold arguments, so neither clients nor the log are told it; the log tells where it was."""
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("the function that decides about approval failed", tool=tool, error=type(error).__name__, trace=where)
    return NotPermitted(
        f"Whether a person has to approve this call of {tool} is unknown: its `requires_approval` failed "
        f"({type(error).__name__})"
    )


class ToolOptions(TypedDict, total=False):
    """What every way of making a tool takes. All of it may be left out."""

    risk_level: Risk
    """How much harm a call can do (`low`, `medium`, `high`), for rules of `permissions`."""
    timeout: float | str
    """Seconds that a call may take (or `"2m"`); each event that it reports starts them anew. Default: 30."""
    requires_approval: bool | ApprovalRule
    """A person has to agree to each call, or to those of which this function of the arguments says so."""
    tags: Sequence[str]
    """Words to find it by."""
    annotations: Mapping[str, Any]
    """What to say of it: `readOnlyHint`, `destructiveHint`, `idempotentHint`, `openWorldHint`, `title`. It is believed:
    a tool that only reads may be cached, retried and run beside others."""
    examples: Sequence[Any]
    """Calls that show how it is used, for searches: arguments, or texts."""
    max_concurrent: int
    """Calls that may be in flight. Default: 16."""
    rate_limit: str
    """How often it may be called, by all clients together: `30/min`, `5/s`."""
    retry: int
    """Attempts in all of a call that failed and can be repeated. Default: 1."""
    cache: float | str
    """Seconds that a result answers the same call again. Default: never."""
    labels: Sequence[Label]
    """What its calls do, for `trust.strict`: `private`, `untrusted`, `sends`. Default: nothing of that."""


M = TypeVar("M", bound="BackendSettings")

_SETTINGS = {"risk_level": "risk", "timeout": "call_timeout", "requires_approval": "permission"}
"""The settings of tools that options are called otherwise than."""


def settings_of(name: str, options: ToolOptions, **others: Any) -> "FunctionSettings":
    """The settings of a tool of one function. `others`: `description`, `input_schema` and so on.

    Raises:
        ConfigError: as `modelled`.
    """
    from mcpbridge.tools.python.settings import FunctionSettings

    return modelled(FunctionSettings, name, options, **others)


def modelled(model: type[M], name: str, options: ToolOptions, **others: Any) -> M:
    """The settings of a tool, as a model has them. `others`: what is no option; None counts as not said.

    Raises:
        ConfigError: an option is unknown, or is not as it must be; names it.
    """
    from pydantic import ValidationError

    known = ToolOptions.__optional_keys__
    for option in options:
        if option not in known:
            near = ", ".join(nearest(option, known, limit=1))
            hint = f"Did you mean `{near}`?" if near else f"There are {', '.join(sorted(known))}."
            raise ConfigError(f"there is no option `{option}` of tools", key=name, hint=hint)
    given: dict[str, Any] = {_SETTINGS.get(option, option): value for option, value in options.items()}
    if given.pop("permission", False):
        # A function of the arguments decides in place of this, and so does nothing where it is False.
        given |= {"permission": "require_approval"} if options.get("requires_approval") is True else {}
    given |= {key: list(cast("Sequence[Any]", given[key])) for key in ("tags", "examples") if key in given}
    if "annotations" in given:
        given["annotations"] = dict(options.get("annotations", {}))
    try:
        return model.model_validate({**given, **{key: value for key, value in others.items() if value is not None}})
    except ValidationError as error:
        (first, *_) = error.errors(include_url=False, include_input=False)
        at = str(first["loc"][0]) if first["loc"] else ""
        option = next((option for option, setting in _SETTINGS.items() if setting == at), at)
        raise ConfigError(f"`{option}`: {first['msg']}", key=name) from None


def asks_of(name: str, options: ToolOptions) -> "Asks | None":
    """What decides whether a person must agree to a call, by the option `requires_approval`."""
    rule = options.get("requires_approval", False)
    if not isinstance(rule, bool) and not callable(rule):
        what = f"expected a bool or a function of the arguments, not {type(rule).__name__}"
        raise ConfigError(f"`requires_approval`: {what}", key=name)
    return asking(name, rule)


def name_of(function: object, name: str | None) -> str:
    """What a tool of this function is called: as is said, else as the function is.

    Raises:
        ConfigError: that is no name for a tool.
    """
    found = name or getattr(function, "__name__", None)
    if not isinstance(found, str):
        found = getattr(getattr(function, "func", None), "__name__", type(function).__name__)  # a partial application
    return check_name(found)


def check_name(name: str) -> str:
    """The same name.

    Raises:
        ConfigError: tools cannot have it.
    """
    plain = name.replace("_", "").replace("-", "").replace(".", "")
    if not (plain.isascii() and plain.isalnum() and len(name) <= 128):
        hint = "Names of tools have letters, digits, `_`, `-` and `.`, 128 at most: give one as `name`."
        raise ConfigError(f"{name!r} is no name for a tool", hint=hint)
    return name
