"""Credit is never overdrawn, and what is refused takes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.credit import Credit


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1_000))))
def test_spent_bytes_never_exceed_granted_bytes(acts):
    credit, granted, spent = Credit(), 0, 0
    for is_grant, size in acts:
        if is_grant:
            credit.grant(size)
            granted += size
        elif credit.spend(size):
            spent += size
        assert spent + credit.available == granted
        assert credit.available >= 0


def test_a_refused_chunk_takes_nothing():
    credit = Credit(10)
    assert not credit.spend(11)
    assert credit.spend(10)


def test_credit_is_never_taken_back():
    with pytest.raises(ValueError):
        Credit(5).grant(-1)
