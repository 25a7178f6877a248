"""The codes and visits of the console and of the pages about accounts, by user."""

from mcpbridge.app.console.sign_in import SignIns


def test_nobody_signs_others_out_by_signing_in_often() -> None:
    sign_ins = SignIns(lambda: 3600.0)
    cookie, code = sign_ins.open("read", "alice"), sign_ins.make_code("read", "alice")
    first = sign_ins.open("read", "bob")
    first_code = sign_ins.make_code("read", "bob")
    for _ in range(2000):
        last, last_code = sign_ins.open("read", "bob"), sign_ins.make_code("read", "bob")
    assert sign_ins.visit(cookie) is not None
    assert sign_ins.whose(code) == "alice"
    assert sign_ins.visit(first) is None
    assert sign_ins.whose(first_code) is None
    assert sign_ins.visit(last) is not None
    assert sign_ins.redeem(last_code) is not None


def test_to_ask_whose_a_code_is_uses_it_up_no_more_than_time_does() -> None:
    now = 0.0
    sign_ins = SignIns(lambda: 3600.0, lambda: now)
    code = sign_ins.make_code("read", "alice")
    assert sign_ins.whose(code) == sign_ins.whose(code) == "alice"
    assert sign_ins.redeem(code) is not None
    assert sign_ins.whose(code) is None
    late = sign_ins.make_code("read", "alice")
    now = 61.0
    assert sign_ins.whose(late) is None
    assert sign_ins.redeem(late) is None
