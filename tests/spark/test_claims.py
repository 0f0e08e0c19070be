"""What a cluster has been granted waits in order, and goes back only as long as nobody has begun it."""

from __future__ import annotations

from skewless_leases import Grant
from skewless_spark.sharing.participation import Claims


def test_grants_are_begun_in_the_order_of_their_names() -> None:
    claims = Claims()
    for name in ("task-2", "task-0", "task-1"):
        claims.granted(Grant(name, 1, "a"))
    assert [one.partition for _ in range(3) if (one := claims.next(0))] == ["task-0", "task-1", "task-2"]
    assert claims.next(0) is None


def test_what_waits_or_is_prepared_is_given_back_and_what_was_begun_is_not() -> None:
    claims = Claims()
    begun, prepared, waiting = (Grant(f"task-{number}", 1, "a") for number in range(3))
    for grant in (begun, prepared, waiting):
        claims.granted(grant)
    assert claims.next(0) == begun
    assert claims.begin(begun)
    assert not claims.asked_back(begun)
    assert claims.next(0) == prepared
    assert claims.asked_back(prepared)
    assert not claims.begin(prepared)
    assert claims.asked_back(waiting)
    assert claims.next(0) is None


def test_what_was_lost_is_not_begun_but_a_later_grant_of_it_is() -> None:
    claims = Claims()
    first, second = Grant("task-0", 1, "a"), Grant("task-0", 3, "a")
    claims.granted(first)
    claims.lost(first)
    assert claims.next(0) is None
    claims.granted(second)
    claims.lost(first)
    assert claims.next(0) == second
    claims.lost(first)
    assert not claims.begin(first)
    assert claims.begin(second)
