from __future__ import annotations

import os
import signal

import pytest

from adops_wrappers.training.exit import StopOnSignal, StoppedEarly


class Talk:
    """Ranks that agree by way of a function."""

    def __init__(self, gather, launched=True):
        self.gather, self.launched, self.launcher = gather, launched, os.getppid()


@pytest.fixture
def stopping():
    made = []

    def make(ranks):
        made.append(StopOnSignal(ranks))
        made[-1].begin()
        return made[-1]

    yield make
    for stop in made:
        stop.restore()


def test_a_signal_that_comes_while_the_ranks_talk_is_not_lost(stopping):
    def interrupted(value):
        os.kill(os.getpid(), signal.SIGTERM)
        return ["", value]

    stop = stopping(Talk(interrupted))
    stop.agree()
    assert stop.requested == ""
    stop.agree()
    assert stop.requested == "SIGTERM"


def test_ranks_stop_when_their_launcher_has_died(stopping):
    ranks = Talk(lambda value: [value])
    stop = stopping(ranks)
    stop.agree()
    assert stop.requested == ""
    ranks.launcher = -1
    stop.agree()
    assert stop.requested == "the death of its launcher"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_the_iterations_a_signal_ends_the_run_at_once(number):
    stop = StopOnSignal(Talk(lambda value: [value], launched=False))
    try:
        with pytest.raises(StoppedEarly, match=number.name):
            signal.raise_signal(number)
        signal.raise_signal(number)  # a second one leaves the end in peace
    finally:
        stop.restore()


def test_ranks_that_have_not_begun_stop_together_after_an_iteration():
    stop = StopOnSignal(Talk(lambda value: ["", value]))
    try:
        signal.raise_signal(signal.SIGTERM)
        stop.begin()
        stop.agree()
    finally:
        stop.restore()
    assert stop.requested == "SIGTERM"


def test_a_second_signal_meets_the_handler_from_before(stopping, capsys):
    before = signal.getsignal(signal.SIGTERM)
    stop = stopping(Talk(lambda value: [value], launched=False))
    assert signal.getsignal(signal.SIGTERM) != before
    os.kill(os.getpid(), signal.SIGTERM)
    assert "SIGTERM: finishing this iteration and writing a checkpoint" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) == before
    stop.agree()
    assert stop.requested == "SIGTERM"
