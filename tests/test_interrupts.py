"""Where an interrupt is raised, and what it is said to be; in a process of its own, whose handlers are replaced."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dfopt.documents.graph import Graph

PROGRAM = """
import os, signal, time
from dfopt.interrupts import LIMIT, cause, exit_code, hear_every_interrupt, interruptible, process_start, shielded
from dfopt.interrupts import interrupt_after_imports, wall_limit

def send(number=signal.SIGINT):
    os.kill(os.getpid(), number)
    for _ in range(1000):  # handlers run between two steps of the interpreter
        pass

def heard(work):
    try:
        work()
    except KeyboardInterrupt:
        return True
    return False

hear_every_interrupt()
assert 0 <= time.perf_counter() - process_start() < 60
assert heard(send) and (cause(), exit_code()) == ("Ctrl-C", 130)
assert heard(lambda: send(signal.SIGTERM)) and (cause(), exit_code()) == ("SIGTERM", 143)

steps = []
def waits():
    with shielded():
        send()
        steps.append("on")
assert heard(waits) and steps == ["on"]  # it was raised at the end

def dropped():
    with shielded(final=True):
        send()
assert not heard(dropped)

def window():
    with shielded():
        send()
        try:
            with interruptible():
                steps.append("never")
        except KeyboardInterrupt:
            steps.append("handled")
        try:
            with interruptible():
                send()
        except KeyboardInterrupt:
            send()  # its handler is shielded
            steps.append("again")
assert heard(window) and steps == ["on", "handled", "again"]

def items():
    yield 1
    send()
    yield 2
def halves():
    with shielded():
        try:
            for item in interruptible.steps(items()):
                steps.append(item)
        except KeyboardInterrupt:
            steps.append("between")
assert not heard(halves) and steps[3:] == [1, "between"]

began = time.perf_counter()
def limited():
    with wall_limit(0.1, began):
        time.sleep(30)
assert heard(limited) and (cause(), exit_code()) == (LIMIT, 5) and time.perf_counter() - began < 25
with wall_limit(0.1, began + 1000):
    pass
with wall_limit(None, began):
    pass
assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
assert not heard(lambda: interrupt_after_imports(signal.SIGALRM, None))  # one that waited for an import, behind all
"""


def test_interrupts_are_raised_where_they_are_heard() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupted_graph_is_no_graph() -> None:
    """networkx takes edges that an interrupt cut short for all of them, if it is given them at once."""

    class Tensors(tuple[()]):
        def __iter__(self):
            yield type("Edge", (), {"src": "a", "dst": "b"})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Graph.model_construct(tensors=Tensors(), kernels=()).networkx()
