"""How much of the processor's time some work takes, compared with other work on the same machine at the same moment.

No clock on the wall is read: a busy machine makes both sides slower, and waiting does not count.
"""

import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object]) -> float:
    """Of this thread."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def assert_no_longer(work: Callable[[], object], than: Callable[[], object], *, times: float = 100) -> None:
    """The work takes at most so many times what the ordinary work of the same size does.

    Work that grows with the square of its size takes thousands of times as long, so the bound may be generous.
    """
    than()  # whatever is loaded or compiled once
    ordinary = max(0.001, min(cpu_seconds(than) for _ in range(3)))
    spent = cpu_seconds(work)
    assert spent <= times * ordinary, f"{spent:.3f} s, and {ordinary:.4f} s for ordinary work of this size"
