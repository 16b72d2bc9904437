from turbopump.client.group.consume_stats import SlidingWindow


def test_a_window_forgets_what_is_older() -> None:
    window = SlidingWindow(slots=3, slot_s=1.0)
    window.add(10.0, 2, 30.0)
    window.add(11.5, 1, 6.0)
    assert (window.count(11.9), window.mean(11.9), window.rate(11.9)) == (3, 12.0, 1.0)
    assert window.count(13.0) == 1
    assert (window.count(99.0), window.mean(99.0)) == (0, 0.0)


def test_a_gap_longer_than_the_window_empties_it() -> None:
    window = SlidingWindow(slots=3, slot_s=1.0)
    for now_s in (1.0, 2.0, 3.0, 7.0):
        window.add(now_s)
    assert window.count(7.0) == 1
