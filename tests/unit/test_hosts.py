"""The host of a user is always the same, and few users move when hosts come and go."""

from collections import Counter

from memory.kernel.work.hosts import choose

HOSTS = ["a", "b", "c", "d"]
USERS = range(2000)


def test_a_user_goes_to_the_same_host_in_whatever_order_they_are_listed() -> None:
    for user in USERS:
        assert choose(HOSTS, user) == choose(HOSTS[::-1], user)


def test_users_are_spread_over_all_hosts() -> None:
    share = len(USERS) / len(HOSTS)

    counts = Counter(choose(HOSTS, user) for user in USERS)

    assert counts.keys() == set(HOSTS)
    assert all(0.8 * share < count < 1.2 * share for count in counts.values())


def test_when_a_host_goes_only_its_own_users_move_and_to_all_of_the_others() -> None:
    left = [host for host in HOSTS if host != "b"]

    moved = {user: choose(left, user) for user in USERS if choose(HOSTS, user) == "b"}

    assert set(moved.values()) == set(left)
    for user in USERS:
        if user not in moved:
            assert choose(left, user) == choose(HOSTS, user)


def test_a_host_that_comes_takes_users_and_moves_none_between_the_others() -> None:
    more = [*HOSTS, "e"]

    for user in USERS:
        assert choose(more, user) in ("e", choose(HOSTS, user))
    assert any(choose(more, user) == "e" for user in USERS)
