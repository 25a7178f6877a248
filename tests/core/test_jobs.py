"""Jobs: one outcome, heard by all who wait; known for a while, counted for an owner, cancelled when nobody is left."""

import asyncio
import gc
import weakref
from functools import partial
from math import inf

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.core.jobs import Job, Jobs
from support.virtual_time import standing_time, turns


async def test_all_who_wait_hear_of_the_first_outcome_and_no_other() -> None:
    job = Job("ann")
    waiting = [asyncio.create_task(job.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert job.waiting == 3
    job.finish("done")
    job.fail(ZeroDivisionError())
    assert await asyncio.gather(*waiting) == [True, True, True]
    assert (job.result(), job.is_done, job.waiting) == ("done", True, 0)
    assert await job.wait() is True


async def test_a_failure_is_raised_to_whoever_asks_for_the_result() -> None:
    job = Job()
    job.fail(ZeroDivisionError("so"))
    assert await job.wait() is True
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="so"):
            job.result()


async def test_time_and_a_wake_end_the_wait_without_an_outcome_but_not_for_those_who_wait_to_the_end() -> None:
    job = Job()
    assert await job.wait(0.001) is False
    short, long = asyncio.create_task(job.wait()), asyncio.create_task(job.wait(to_the_end=True))
    await asyncio.sleep(0)
    job.wake()
    assert await short is False
    assert not long.done()
    job.finish(None)
    assert await long is True


async def test_the_last_who_leaves_deserts_a_job_and_nobody_deserts_one_that_is_done() -> None:
    job, deserted = Job(), list[str]()
    job.on_deserted = partial(deserted.append, "yes")
    first, second = asyncio.create_task(job.wait()), asyncio.create_task(job.wait())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    assert deserted == []
    second.cancel()
    await asyncio.wait([second])
    assert deserted == ["yes"]
    job.finish(1)
    await job.wait()
    assert deserted == ["yes"]


async def test_a_task_does_the_work_and_its_end_is_the_outcome() -> None:
    jobs = Jobs[Job]()

    async def work(divisor: int) -> float:
        await asyncio.sleep(0)
        return 1 / divisor

    with anyio.fail_after(60):
        async with jobs.running():
            good, bad = Job(), Job()
            assert jobs.start(good, work(2))
            assert jobs.start(bad, work(0))
            assert await good.wait()
            assert await bad.wait()
    assert good.result() == 0.5
    with pytest.raises(ZeroDivisionError):
        bad.result()


@pytest.mark.parametrize("begins", [True, False], ids=["begun", "not begun"])
async def test_a_cancelled_job_is_forgotten_at_once_and_fails_when_its_task_has_ended(begins: bool) -> None:
    jobs = Jobs[Job](cancels_by_hand=True)
    job = jobs.add(Job("ann", "key", "id"))
    assert jobs.start(job, asyncio.Event().wait())
    if begins:
        await asyncio.sleep(0)
    jobs.cancel(job)
    assert (len(jobs), jobs.get("id"), jobs.find("key"), jobs.of("ann")) == (0, None, None, [])
    with anyio.fail_after(60):
        assert await job.wait()
    with pytest.raises(asyncio.CancelledError):
        job.result()
    await asyncio.sleep(0)
    assert jobs.under_way() == set()


async def test_leaving_ends_the_tasks_and_nothing_starts_outside() -> None:
    jobs, job = Jobs[Job](), Job()
    with anyio.fail_after(60):
        async with jobs.running():
            jobs.start(job, asyncio.Event().wait())
            await asyncio.sleep(0)
    assert job.is_done
    assert jobs.start(Job(), asyncio.Event().wait()) is False


async def test_a_job_is_found_by_id_key_and_owner_until_it_is_forgotten() -> None:
    jobs = Jobs[Job](per_owner=2)
    first, second = jobs.add(Job("ann", "k", "1")), jobs.add(Job("ann", "k", "2"))
    assert not jobs.has_room("ann")
    assert jobs.has_room("bob")
    assert (jobs.find("k"), list(jobs.same("k")), jobs.of("ann")) == (first, [first, second], [first, second])
    jobs.hand_over(first, "bob")
    assert (jobs.of("ann"), jobs.of("bob")) == ([second], [first])
    jobs.forget(first)
    jobs.forget(first)
    assert (jobs.get("1"), jobs.get("2"), jobs.find("k"), list(jobs)) == (None, second, second, [second])
    assert jobs.statistics() == {"known": 1, "running": 0, "done": 0, "waiting": 0}
    assert "1 known" in repr(jobs)
    assert "'2' of 'ann', open, 0 waiting" in repr(second)


async def test_jobs_are_forgotten_in_the_order_of_their_times_and_kept_ones_are_not() -> None:
    jobs, over = Jobs[Job](), list[str]()
    ended = asyncio.Event()
    for name, seconds in [("late", 0.03), ("early", 0.01), ("kept", 0.001), ("again", 0.001)]:
        job = jobs.add(Job(id=name))
        job.on_expired = partial(lambda job: (over.append(job.id), jobs.forget(job), over[1:] and ended.set()), job)
        jobs.forget_in(job, seconds)
    kept, again = jobs.get("kept"), jobs.get("again")
    assert kept is not None
    assert again is not None
    jobs.keep(kept)
    jobs.forget_in(again, 3600)
    with anyio.fail_after(60):
        await ended.wait()
    assert over == ["early", "late"]
    assert [job.id for job in jobs] == ["kept", "again"]
    assert kept.expires == inf
    jobs.clear()
    assert len(jobs) == 0


async def test_a_forgotten_job_is_not_held_until_its_time_would_have_come() -> None:
    """A table that is never empty would hold all that it ever knew, for as long as the longest time."""
    jobs = Jobs[Watched]()
    stays = jobs.add(Watched(id="stays"))
    jobs.forget_in(stays, 3600)
    passed = weakref.WeakSet[Watched]()
    for number in range(1000):
        job = jobs.add(Watched(id=str(number)))
        passed.add(job)
        jobs.forget_in(job, 3600)
        jobs.forget(job)
    del job
    assert len(passed) <= 100
    assert list(jobs) == [stays]
    jobs.clear()


class Watched(Job):
    """A job that can be seen to be gone."""

    __slots__ = ("__weakref__",)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("kl"), st.sampled_from("fho")), max_size=30))
def test_whatever_comes_and_goes_the_table_is_of_one_mind(steps: list[tuple[str, str, str]]) -> None:
    """Ids, keys, owners and counts never disagree."""
    jobs, known = Jobs[Job](per_owner=3), list[Job]()
    for number, (owner, key, then) in enumerate(steps):
        job = jobs.add(Job(owner, key, str(number)))
        known.append(job)
        if then == "f":
            jobs.forget(known.pop(0))
        elif then == "h":
            jobs.hand_over(known[0], "b")
        assert list(jobs) == known
        for name in "ab":
            assert jobs.of(name) == [one for one in known if one.owner == name]
            assert jobs.has_room(name) == (len(jobs.of(name)) < 3)
        for name in "kl":
            assert list(jobs.same(name)) == [one for one in known if one.key == name]
        assert all(jobs.get(one.id) is one for one in known)


async def test_nobody_deserts_a_job_whose_outcome_they_heard_of() -> None:
    """The last who waited leaves because there is an outcome; the work is not to be cancelled then."""
    for end in (lambda job: job.finish(1), lambda job: job.fail(ValueError())):
        job, deserted = Job(), list[int]()
        job.on_deserted = lambda deserted=deserted: deserted.append(1)
        waiting = [asyncio.create_task(job.wait()) for _ in range(2)]
        await asyncio.sleep(0)
        end(job)
        assert await asyncio.gather(*waiting) == [True, True]
        assert deserted == []


async def test_a_job_is_forgotten_at_its_time_and_leaves_no_key_behind() -> None:
    with standing_time() as go_on:
        jobs = Jobs[Job]()
        for key in ("a", "b", "a"):
            jobs.forget_in(jobs.add(Job(owner="ann", key=key)), 5)
        go_on(4.9)
        await turns()
        assert (len(jobs), len(jobs.same("a"))) == (3, 2)
        go_on(0.1)  # to the point: timers may be that much early
        await turns()
        assert not jobs
        assert (jobs._keys, jobs._ids, jobs._counts) == ({}, {}, {})


class Referable(Job):
    """One that can be looked for after it was let go."""


async def test_after_all_were_cleared_nothing_is_held_and_the_next_has_its_time() -> None:
    with standing_time() as go_on:
        jobs = Jobs[Job]()
        jobs.forget_in(jobs.add(held := Referable(key="a")), 5)
        seen = weakref.ref(held)
        jobs.clear()
        del held
        gc.collect()
        assert seen() is None
        jobs.forget_in(jobs.add(Job(key="b")), 50)
        go_on(49)
        await turns()
        assert len(jobs) == 1
        go_on(1.1)
        await turns()
        assert not jobs


async def test_the_last_that_is_forgotten_by_hand_leaves_no_timer_in_the_way() -> None:
    with standing_time() as go_on:
        jobs = Jobs[Job]()
        jobs.forget_in(job := jobs.add(Job(key="a")), 5)
        jobs.forget(job)
        jobs.forget_in(jobs.add(Job(key="b")), 50)
        go_on(50.1)
        await turns()
        assert not jobs
