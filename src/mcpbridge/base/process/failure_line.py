"""Choose the line of a failed program's output that says why it failed. Pure.

The last line is often a hint, a stack frame or a farewell. So what package managers, interpreters and containers print
around the cause is known here: lines that never are the cause, lines that certainly are, and words that make one
likely. `check`, `list`, `status`, `logs`, `call` and `doctor` all show this line.
"""

import re
from collections.abc import Sequence

_LONGEST = 400
"""Characters of what is shown."""

_NEVER = re.compile(
    r"""^\s*$
    | ^\s*(?:at\s|\#\d+\s|\.\.\.\s\d+\s(?:more|common)|from\s.*:\d+:in\s|File\s")          # frames of a stack
    | ^[\s|+^~\-─-╿▶]*$                                                                       # rules and markers
    | ^\s*(?:hint|help|note|tip|info|usage|warning|warn|debug|trace)\b\s*:                   # advice
    | ^\s*(?:Node\.js\sv\d|goroutine\s\d|exit\sstatus\s\d|created\sby\s|Require\sstack:|-\s/|stack\sbacktrace:)
    | ^\s*(?:See\s'|See:?\shttps?:|Run\s'|Try\s'|For\s(?:more|further)\sinformation|Usage:|Learn\smore)
    | ^npm\s(?:ERR!|error|notice|warn|WARN)\s*(?:$|code\b|errno\b|syscall\b|path\b|dest\b|\d{3}\s*$|A\scomplete\slog
        |\d{3}\s+Note\sthat|\d{3}\s+(?:tarball,|in\sthe))
    | ^npm\s(?:notice|warn|WARN)\b
    | ^\s*(?:[}\])],?;?|(?:code|errno|syscall|path|requireStack|spawnargs|digest)\s*:.*)$     # what Node prints
    | ^\s*(?:Traceback\s\(most\srecent|During\shandling\sof|The\sabove\sexception\swas)
    | \b(?:Deprecation|Future|User|Runtime|Resource|Syntax|PendingDeprecation|Experimental)Warning\b
    | ^\s*\((?:Use|node:)""",
    re.VERBOSE,
)
"""Lines that never are the cause."""

_QUIET_LEVEL = re.compile(
    r"(?:^|[\s\[|:\-])(?:INFO|DEBUG|TRACE|WARNING|WARN|NOTICE)(?:[\s\]|:]|$)|level=(?:info|debug|warn)"
)
"""Lines of a log that report no error."""

_EXCEPTION = re.compile(
    r"^[\s|+\-]*(?:(?:Uncaught|Unhandled|Caused\sby:?|Exception\sin\sthread\s\S+|\[?ERROR\]?:?)\s)?"
    r"(?:[A-Za-z_][\w$]*[.:]{1,2})*[A-Z]\w*(?:Error|Exception|Failure|Exit|Interrupt|NotFound|Missing|Refused)\b\s*"
    r"(?:\[\w+\])?(?::\s*\S|\s*$)"
)
"""How interpreters name what ended a program: `ModuleNotFoundError: …`, `java.io.IOException: …`."""

_CERTAIN = re.compile(
    r"""^\s*(?:fatal|FATAL|panic|Fatal|PANIC)\b.*:\s*\S
    | ^\s*(?:error|Error|ERROR)(?:\[\w+\])?:\s*\S
    | ^\s*×\s
    | ^[\w./\-]+:\s(?:error|fatal(?:\serror)?|Error(?:\sresponse\sfrom\sdaemon)?):\s*\S
    | ^thread\s'[^']*'.*\spanicked\sat\s
    | ^(?:/\S*/)?(?:ba|da|z)?sh:\s
    | :\scommand\snot\sfound$
    | \((?:[A-Z]\w*)?(?:Error|Exception)\)$                                                    # Ruby
    | ^npm\s(?:ERR!|error)\s\S""",
    re.VERBOSE,
)
"""How programs name their own failure."""

_LIKELY = re.compile(
    r"\b(?:errors?|failed|failure|fatal|cannot|can't|could\snot|couldn't|unable|unknown|not\sfound|no\ssuch|denied"
    r"|refused|missing|required|invalid|not\sset|must\b|unauthori[sz]ed|forbidden|expired|exception|abort(?:ed)?"
    r"|in\suse|no\sspace|unsupported|not\ssupported|killed|crashed|timed\sout)\b",
    re.IGNORECASE | re.VERBOSE,
)


def telling_line(lines: Sequence[str]) -> str:
    """The line that says why a program failed, of those that it wrote last; oldest first. Empty: none says anything.

    1. What an interpreter, or the program itself, names as its failure: the last of these, since it ends the program.
       npm says it first, and then how to continue.
    2. Else the last line with a word that goes with failures.
    3. Else the last line that is neither advice nor a stack frame, else the last line.
    """
    said = [line.rstrip() for line in lines]
    causes = [number for number, line in enumerate(said) if not _NEVER.search(line)]
    loud = [number for number in causes if not _QUIET_LEVEL.search(said[number])]
    certain = [number for number in loud if _EXCEPTION.search(said[number]) or _CERTAIN.search(said[number])]
    if certain:
        return _with_more(said, _first_of_npm(said, certain))
    likely = [number for number in loud if _LIKELY.search(said[number])]
    for numbers in (likely, loud, causes):
        if numbers:
            return _clean(said[numbers[-1]])
    return _clean(next((line for line in reversed(said) if line.strip()), ""))


def _first_of_npm(lines: Sequence[str], certain: Sequence[int]) -> int:
    """The last of the lines; of a run of npm's the first one of the last run."""
    last = certain[-1]
    if not lines[last].startswith("npm "):
        return last
    return min(number for number in certain if lines[number].startswith("npm "))


def _with_more(lines: Sequence[str], number: int) -> str:
    """A line with those behind it that belong to its sentence."""
    line, rest = lines[number], lines[number + 1 :]
    if line.lstrip().startswith("×"):  # uv: what could not be done, and behind an arrow why not
        more: list[str] = []
        for one in rest:
            if not one.strip() or re.match(r"\s*hint\b", one):
                break
            more.append(one)
        return _clean(" ".join([line, *more]))
    if "panicked at" in line and rest and "panicked at" not in rest[0] and not _NEVER.search(rest[0]):
        return _clean(f"{line} {rest[0]}")  # Rust: the message has a line of its own
    if re.search(r"\d+ validation errors? for ", line):  # pydantic: the field, and what is wrong with it
        return _clean(" ".join([line, *(one.partition(" [type=")[0] for one in rest[:2])]))
    if causes := [
        one for one in rest if re.match(r"\s+Caused by: \S", one)
    ]:  # uv and cargo: the last is the first cause
        return _clean(f"{line} {causes[-1].strip()}")
    return _clean(line)


def _clean(line: str) -> str:
    """One line without the marks around it."""
    text = " ".join(re.sub(r"[×╰─▶│├└]+", " ", re.sub(r"^[\s|+]*(?:\|\s)?", "", line)).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
