"""What an expression may take: time, memory, sizes. And how many worker processes there are, and for how long.

The worker is handed its part on its command line (`for_worker`), as it can import nothing of ours.
"""

SECONDS = 1.0
"""CPU time of one expression."""
SECONDS_TO_READ = 10.0
"""CPU time of binding the result, before the expression runs."""
LARGEST_INPUT = 64 << 20
"""Characters of a result that an expression may be given."""
LARGEST_EXPRESSION = 100_000
"""Characters."""
LARGEST_ANSWER = 8 << 20
"""Characters."""
MEMORY, MEMORY_PER_CHARACTER, MOST_MEMORY = 64 << 20, 12, 448 << 20
"""Bytes that the engine may take: for any input, for each of its characters, and at most."""

DEADLINE = 10.0
"""Seconds by the clock until a worker is killed, more for large results: its time to compute is limited by itself
(`SECONDS`), and one that was idle for long may have to be read back into memory first."""
PATIENCE = 20.0
"""Seconds that a call waits for a worker to be free."""

WORKERS = 2
"""Workers at a time; the second one starts when a call finds the first one busy."""
START_WITHIN = 20.0
"""Seconds until a worker is ready. It takes a twentieth of one on a machine with nothing else to do."""
GONE_WITHIN = 3.0
"""Seconds for a worker that was killed to be gone."""
IDLE = 180.0
"""Seconds after which a worker that has nothing to do is ended."""
EVALUATIONS = 1000
"""After so many a worker is replaced."""
LARGEST_WORKER = 160 << 20
"""Bytes: a worker that holds more after an answer is replaced."""


def for_worker() -> list[str]:
    """The limits that the worker keeps itself, as words of its command line."""
    times, sizes = (SECONDS, SECONDS_TO_READ), (LARGEST_ANSWER, MEMORY, MEMORY_PER_CHARACTER, MOST_MEMORY)
    return [str(limit) for limit in (*times, *sizes)]
