"""Previews of logs, test runs, builds and traces."""

from mcpbridge.results.document import Document
from mcpbridge.results.preview.preview import preview_text


def told(text: str, room: int = 1900) -> str:
    return preview_text(Document(text, "log"), room)


def application_log() -> str:
    lines = [
        f"2025-01-02T03:{at // 60:02d}:{at % 60:02d}Z INFO  [web] GET /item/{at} 200 {at % 90 + 10}ms"
        for at in range(300)
    ]
    for at in range(0, 300, 50):
        lines[at] = f"2025-01-02T03:{at // 60:02d}:00Z ERROR [db] node n{at} answered {503 if at % 100 else 504}"
    lines[77] = "2025-01-02T03:01:17Z FATAL [jobs] ledger broken at txn-42ab"
    return "\n".join(lines) + "\n"


def test_levels_failures_and_what_lines_say_are_counted() -> None:
    text = told(application_log())
    assert "300 lines" in text
    assert "levels: INFO×293, ERROR×6, FATAL×1" in text
    assert "FATAL lines: L78 2025-01-02T03:01:17Z FATAL [jobs] ledger broken at txn-42ab" in text
    assert "503×3" in text
    assert "504×3" in text
    assert "last: 2025-01-02T03:04:59Z INFO  [web] GET /item/299 200 39ms" in text
    assert "slowest: L90 " in text
    assert "failures from: db×5" in text.replace("db×6", "db×5")


def test_a_small_room_keeps_the_gravest_and_the_end() -> None:
    text = told(application_log(), 400)
    assert "FATAL lines: L78" in text
    assert "last: 2025-01-02T03:04:59Z" in text


def test_a_log_without_levels_is_told_by_what_it_says() -> None:
    lines = [
        f"Oct  3 10:{at // 60:02d}:{at % 60:02d} host sshd[{at}]: Failed password for admin from 203.0.113.{at % 250}"
        for at in range(200)
    ]
    lines[150] = "Oct  3 10:02:30 host kernel: Out of memory: Killed process 4311"
    text = told("\n".join(lines))
    assert "199× Failed password for admin from" in text
    assert "L151 Out of memory: Killed process 4311" in text
    assert "from: sshd×199, kernel×1" in text


def test_requests_are_counted_by_status_path_and_client() -> None:
    lines = [
        f'10.0.0.{at % 3} - - [10/Oct/2025:13:00:{at % 60:02d} +0000] "GET /p{at % 2}?q={at} HTTP/1.1"'
        for at in range(120)
    ]
    lines = [f'{line} {500 if at == 41 else 200} {at} "-" "curl" 0.{at:03d}' for at, line in enumerate(lines)]
    text = told("\n".join(lines))
    assert "status: 200×119, 500×1" in text
    assert "paths: /p0×60, /p1×60" in text
    assert f"bytes sent: {sum(range(120))}" in text
    assert "1 failed (5xx): 500 GET /p1×1" in text
    assert "slowest: L120" in text


def test_failed_tests_are_named_and_passed_ones_counted() -> None:
    lines = [f"tests/test_a.py::test_{at} {'FAILED' if at in {7, 90} else 'PASSED'} [{at}%]" for at in range(100)]
    lines += ["E       assert 1 == 2", "tests/test_a.py:12: AssertionError", "", "=== 2 failed, 98 passed in 1.2s ==="]
    text = told("\n".join(lines))
    assert "tests: PASSED×98, FAILED×2" in text
    assert "2 failed: tests/test_a.py::test_7\n  tests/test_a.py::test_90" in text
    assert "tests/test_a.py:12: AssertionError (L102)" in text
    assert "summary: 2 failed, 98 passed in 1.2s" in text


def test_runners_of_other_languages_are_understood() -> None:
    cargo = "running 30 tests\n" + "".join(f"test m::c{at} ... {'FAILED' if at == 9 else 'ok'}\n" for at in range(30))
    assert "1 failed: m::c9" in told(cargo + "test result: FAILED. 29 passed; 1 failed\n")
    go = "".join(f"=== RUN   TestX{at}\n--- {'FAIL' if at == 4 else 'PASS'}: TestX{at} (0.00s)\n" for at in range(30))
    assert "1 failed: TestX4" in told(go + "FAIL\texample.com/x\t0.4s\n")
    tap = "".join(f"{'not ok' if at == 5 else 'ok'} {at} - thing {at}\n" for at in range(30))
    assert "1 failed: thing 5" in told(tap)


def test_mistakes_that_a_compiler_found_are_listed_by_place_and_message() -> None:
    lines = [f"src/page{at % 3}.ts({at + 1},5): error TS2304: Cannot find name 'x{at}'." for at in range(30)]
    text = told("\n".join([*lines, "Found 30 errors in 3 files."]))
    assert "src/page0.ts:1: error TS2304: Cannot find name 'x0'. (L1)" in text
    assert "places by file: src/page0.ts×10, src/page1.ts×10, src/page2.ts×10" in text
    assert "30× error TS2304: Cannot find name" in text
    assert "summary: Found 30 errors in 3 files." in text


def test_a_trace_is_shown_from_its_start_to_what_was_thrown() -> None:
    frames = [line for at in range(20) for line in (f'  File "/srv/m{at}.py", line {at + 1}, in call', "    step()")]
    lines = ["Traceback (most recent call last):", *frames, "shop.PaymentError: card refused", "done with 1 error"]
    text = told("\n".join(lines))
    assert "exceptions: shop.PaymentError×1" in text
    assert "1 trace: L1 Traceback (most recent call last):" in text
    assert "L42 shop.PaymentError: card refused" in text


def test_signs_that_are_not_ascii_change_nothing_about_the_other_lines() -> None:
    lines = [f"  {'✗' if at == 3 else '✓'} adds {at} and {at}" for at in range(20)]
    text = told("\n".join([*lines, "step 1 of 2", "step 2 of 2", "step 3 of 2", "1 failed"]))
    assert "tests: passed×19, failed×1" in text
    assert "1 failed: adds 3 and 3" in text
    assert "3× step {1 2 3} of 2" in text
    assert "summary: 1 failed" in text


def test_lines_that_differ_in_digits_only_are_told_apart_by_their_places() -> None:
    lines = [f"  --> src/m{at}.rs:{at + 10}:5" for at in range(3)]
    text = told("\n".join([*lines, "error: aborting due to 3 previous errors"]))
    assert all(f"src/m{at}.rs:{at + 10} (L{at + 1})" in text for at in range(3))


def test_a_level_counts_wherever_a_line_names_it_after_its_time() -> None:
    starts = ("INFO ", "[main] INFO ", "level=INFO ", "[app] [INFO] ")
    lines = [f"2025-01-02 03:04:{at:02d} {starts[at % 4]}saved {at}" for at in range(40)]
    assert "levels: INFO×40" in told("\n".join(lines))
