"""The pause of the garbage collector."""

import gc
from threading import Barrier, Thread

from mcpbridge.results.shorten import uncollected


def test_the_collector_runs_again_after_the_last_pause() -> None:
    inside, seen = Barrier(2), list[bool]()

    def pausing() -> None:
        with uncollected():
            inside.wait()
            seen.append(gc.isenabled())

    with uncollected():
        thread = Thread(target=pausing)
        thread.start()
        inside.wait()
        thread.join()
        assert not gc.isenabled()
    assert seen == [False]
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
