"""When the windows of a rollout let nodes start: against a second implementation of schedules, and minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from random import Random
from zoneinfo import ZoneInfo

import pytest
from crondst import CronDst, CronDstError

from gpuward.model.windows import OPEN, Window, WindowState
from gpuward.upgrade.windows import openings, window_state, windows_of, with_room
from tests.sampling import WHOLE

ZONES = ("UTC", "Europe/Berlin", "Europe/Dublin", "America/New_York", "America/Sao_Paulo", "America/St_Johns", "Asia/Kolkata",
         "Africa/Casablanca", "Pacific/Apia")
"""Without Australia/Lord_Howe, whose clock is changed by half an hour: there `* 7 * * *` begins at 7:30 on such a day."""
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


def field(random: Random, first: int, last: int, often: float) -> str:
    """Draw a field of a schedule: `often` a star, else a step, a range, a list or a number."""
    draw = random.random()
    if draw < often:
        return "*"
    if draw < often + 0.1:
        return f"*/{random.randint(2, max(2, (last - first) // 2))}"
    if draw < often + 0.2:
        low, high = sorted(random.sample(range(first, last + 1), 2))
        return f"{low}-{high}"
    if draw < often + 0.3:
        return ",".join(str(number) for number in sorted(random.sample(range(first, last + 1), 3)))
    return str(random.randint(first, last))


def schedule(random: Random) -> str:
    """Draw a schedule that comes often enough to be worth looking at."""
    return " ".join((field(random, 0, 59, 0.1), field(random, 0, 23, 0.2), field(random, 1, 28, 0.7), field(random, 1, 12, 0.9),
                     field(random, 0, 6, 0.6)))


def near_a_change(random: Random, zone: str) -> datetime:
    """Draw a moment within two weeks of when clocks are changed in much of the world, or any other."""
    month, day = random.choice(((3, 1), (3, 20), (4, 1), (10, 18), (10, 28), (1, 1), (7, 1)))
    return datetime(2026, month, day, random.randrange(24), random.randrange(60), tzinfo=ZoneInfo(zone))


def openings_are_those_of_another(seed: int) -> None:
    random = Random(seed)
    zone, text = random.choice(ZONES), schedule(random)
    begin = near_a_change(random, zone)
    try:
        expected = [moment.timestamp() for moment in islice(CronDst(text).iter(begin), 80)]
    except CronDstError:
        return  # it takes `9-9` for nothing
    found = list(islice(openings(Window(schedule=text, duration=HOUR, zone=zone), begin.timestamp()), 80))
    assert found == expected, (seed, text, zone, begin)


def test_schedules_open_when_another_implementation_says() -> None:
    for seed in range(10_000 if WHOLE else 100):
        openings_are_those_of_another(seed)


def window(random: Random, begin: float) -> Window:
    """Draw a window of either kind and either form."""
    allows, zone = random.random() < 0.6, random.choice(ZONES)
    if random.random() < 0.3:
        start = begin + random.uniform(-2, 4) * DAY
        return Window(allows, start=start, end=start + random.uniform(0.01, 2) * DAY, zone=zone)
    text = f"{field(random, 0, 59, 0.05)} {field(random, 0, 23, 0.2)} * * {field(random, 0, 6, 0.7)}"
    return Window(allows, text, random.choice((5 * MINUTE, HOUR, 6 * HOUR, 30 * HOUR)), zone=zone)


def is_inside(one: Window, at: float) -> bool:
    if not one.schedule:
        return one.start <= at < one.end
    begins = openings(one, at - one.duration)
    return next(begins) <= at


def may_start(windows: tuple[Window, ...], at: float) -> bool:
    """Tell it again, in the words of the documentation."""
    allowing = [one for one in windows if one.allows]
    in_one = not allowing or any(is_inside(one, at) for one in allowing)
    return in_one and not any(is_inside(one, at) for one in windows if not one.allows)


def test_nodes_may_start_while_one_allows_it_and_none_denies_it() -> None:
    """The moment of the next change is no earlier than what it names, and nothing changes before it."""
    for seed in range(2_000 if WHOLE else 25):
        random = Random(seed)
        begin = near_a_change(random, "UTC").timestamp()
        windows = tuple(window(random, begin) for _ in range(random.randint(1, 4)))
        for _ in range(4):
            at = float(int(begin + random.uniform(0, 3) * DAY))
            found = window_state(windows, at)
            assert found.opened is may_start(windows, at), (seed, at)
            if found.changes is None:
                assert all(may_start(windows, at + days * DAY) is found.opened for days in range(9)), (seed, at)
                continue
            assert found.changes > at, seed
            inside = {at + (found.changes - at) * part for part in (0.1, 0.5, 0.9)} | {found.changes - 1}
            assert all(may_start(windows, each) is found.opened for each in inside if each > at), (seed, at)
            if found.changes - at < 2 * DAY:
                assert may_start(windows, found.changes) is not found.opened, (seed, at)


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(("text", "zone", "opens"), [
    ("30 2 29 3 *", "Europe/Berlin", "2026-03-29T03:00+02:00"),
    ("30 2 25 10 *", "Europe/Berlin", "2026-10-25T02:30+02:00"),
    ("0 22 * * FRI", "Europe/Berlin", "2026-03-27T22:00+01:00"),
], ids=["the hour that is left out", "the hour that comes twice", "before a change"])
def test_no_window_is_lost_when_clocks_change(text: str, zone: str, opens: str) -> None:
    expected = moment(opens)
    assert next(openings(Window(schedule=text, duration=HOUR, zone=zone), expected - 2 * DAY)) == expected


def test_a_window_lasts_as_long_as_it_says_when_clocks_change_in_it() -> None:
    night = (Window(schedule="0 1 * * *", duration=4 * HOUR, zone="Europe/Berlin"),)
    state = window_state(night, moment("2026-03-29T01:30+01:00"))
    assert state == WindowState(True, moment("2026-03-29T06:00+02:00"), "Europe/Berlin")


def test_windows_of_a_wave_that_allow_starts_stand_in_place_of_the_rollouts_and_all_that_deny_them_hold() -> None:
    night, day = Window(schedule="0 22 * * *", duration=HOUR), Window(schedule="0 9 * * *", duration=HOUR)
    freeze, lunch = Window(False, start=1.0, end=2.0), Window(False, "0 12 * * *", HOUR)
    assert windows_of((day,), (night, freeze)) == (day, freeze)
    assert windows_of((lunch,), (night, freeze)) == (night, lunch, freeze)
    assert windows_of((day, lunch), ()) == (day, lunch)
    assert windows_of((), (night, freeze)) == (night, freeze)


def test_without_windows_nodes_may_start() -> None:
    assert window_state((), 0.0) == OPEN


def test_a_freeze_alone_lets_nodes_start_before_and_after() -> None:
    begin, end = moment("2026-12-20T00:00Z"), moment("2027-01-04T00:00Z")
    freeze = (Window(False, start=begin, end=end),)
    assert window_state(freeze, begin - 1) == WindowState(True, begin)
    assert window_state(freeze, begin) == WindowState(False, end)
    assert window_state(freeze, end) == WindowState(True, None)


def test_what_is_always_open_or_never_again_says_so() -> None:
    always = (Window(schedule="* * * * *", duration=2 * MINUTE),)
    assert window_state(always, 1_000_000.0).opened
    assert window_state((Window(start=1.0, end=2.0),), 3.0) == WindowState(False, None)
    assert not window_state((*always, Window(False, "* * * * *", 2 * MINUTE)), 1_000_000.0).opened


@pytest.mark.parametrize("broken", [
    Window(schedule="never", duration=HOUR), Window(schedule="0 0 * * *", duration=HOUR, zone="Nowhere/At_All"),
    Window(schedule="0 0 * * *", duration=1e300), Window(start=1.0, end=1e308, zone="../x"),
], ids=repr)
def test_what_somebody_broke_in_what_is_remembered_is_shut(broken: Window) -> None:
    assert not window_state((broken,), datetime.now(UTC).timestamp()).opened


def test_a_node_that_has_to_be_back_in_time_starts_while_a_window_stays_open_long_enough() -> None:
    night = (Window(schedule="0 22 * * *", duration=HOUR),)
    opens = moment("2026-06-01T22:00Z")
    def found(at: float, takes: float) -> WindowState:
        return with_room(window_state(night, at), night, takes, at)

    assert found(opens + 1800, 1800) == WindowState(True, opens + HOUR)
    assert found(opens + 1801, 1800) == WindowState(False, opens + DAY, shuts=opens + HOUR, takes=1800)
    assert found(opens + 1801, 0) == WindowState(True, opens + HOUR), "nothing is known of how long it takes"
    assert found(opens - 60, 1800) == WindowState(False, opens, takes=1800)
    assert found(opens, HOUR + 1) == WindowState(False, None, shuts=opens + HOUR, takes=HOUR + 1), "none is long enough"
    assert found(opens - 60, HOUR + 1).changes is None


def test_a_window_that_is_long_enough_is_looked_for_behind_those_that_are_not() -> None:
    windows = (Window(schedule="0 22 * * *", duration=HOUR), Window(schedule="0 6 * * SAT", duration=6 * HOUR))
    at = moment("2026-06-01T12:00Z")  # a Monday
    assert with_room(window_state(windows, at), windows, 2 * HOUR, at).changes == moment("2026-06-06T06:00Z")


def test_however_many_short_windows_come_first_the_long_one_is_found() -> None:
    windows = (Window(schedule="0 1 * * MON-FRI", duration=HOUR / 2), Window(schedule="0 0 1 * *", duration=6 * HOUR))
    at = moment("2026-06-01T12:00Z")
    assert with_room(window_state(windows, at), windows, 0.75 * HOUR, at).changes == moment("2026-07-01T00:00Z")
    short = tuple(Window(start=at + number * HOUR, end=at + number * HOUR + 60) for number in range(1, 200))
    later = Window(start=at + 300 * HOUR, end=at + 304 * HOUR)
    assert with_room(window_state((*short, later), at), (*short, later), HOUR, at).changes == later.start


def test_windows_of_which_nobody_can_tell_are_shut_however_long_an_upgrade_takes() -> None:
    edited = (Window(schedule="nonsense", duration=HOUR),)
    assert with_room(window_state(edited, 0.0), edited, 600.0, 0.0) == WindowState(opened=False, takes=600.0)


def test_a_node_that_would_start_is_back_before_the_window_shuts() -> None:
    """Whatever the windows are: the state with room is open just where each moment until the upgrade's end is in a window."""
    for seed in range(1_000 if WHOLE else 20):
        random = Random(seed)
        begin = near_a_change(random, "UTC").timestamp()
        windows = tuple(window(random, begin) for _ in range(random.randint(1, 4)))
        at, takes = float(int(begin + random.uniform(0, 3) * DAY)), random.choice((5 * MINUTE, HOUR, 5 * HOUR))
        found = with_room(window_state(windows, at), windows, takes, at)
        until_done = [at + takes * part for part in (0.0, 0.2, 0.4, 0.6, 0.8, 0.999)]
        if found.opened:
            assert all(may_start(windows, each) for each in until_done), (seed, at)
        elif found.changes is not None:
            assert all(may_start(windows, found.changes + takes * part) for part in (0.0, 0.3, 0.6, 0.999)), (seed, at)
