"""Answers about plans, remembered by what was read of a plan: thousands of plans look the same to most questions.

Nobody says what an answer depends on. The first time it is worked out a recorder stands for the plan and notes what is
read. What is read next depends only on what was read before, so all that is known forms a tree: at each node something
that is read, for each of its values a subtree or an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields, replace
from functools import cache, cached_property, partial
from operator import attrgetter, methodcaller
from typing import Any, ClassVar, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, cast, overload

from dfopt.documents.plan import Plan

Asked = TypeVar("Asked")
P = ParamSpec("P")
_OPEN: Final = object()
_Read = str | tuple[str, tuple[Any, ...], tuple[tuple[str, Any], ...]]
"""A field or property by its name, or a method by its name with what it is given."""


class Recorder:
    """Proxy of a plan that records which attributes are read, with their values in order.

    It cannot be a cache key: a cache keyed by whole plans would bypass the record of what is read.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, plan: Any) -> None:
        self._read_of = plan
        self.reads: dict[_Read, Any] = {}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._read_of, name)
        if not callable(value):
            self.reads[name] = self.__dict__[name] = value  # from now on without coming here
            return value

        def called(*given: Any, **named: Any) -> Any:
            read = name, given, tuple(sorted(named.items()))
            return self.reads.setdefault(read, value(*given, **named))

        return called


class ByReads:
    """Cache of the answers to one question about plans, keyed by what the question reads of a plan.

    Examples
    --------
    >>> question = ByReads()
    >>> [question.answer(Plan(tp=2, dp=dp), lambda plan: 10 * plan.tp) for dp in (1, 2)], question.worked_out
    ([20, 20], 1)
    """

    def __init__(self) -> None:
        self.worked_out = 0
        # [not known], [answer], or [what is read, {value: node}, last value, its node, what reads it]
        self._root: list[Any] = [_OPEN]

    def answer(self, plan: Asked, work: Callable[[Asked], Any]) -> Any:
        """The answer for a plan, computed once for all plans with equal values of what is read.

        Parameters
        ----------
        plan
            A plan, or a proxy of one; objects of another type are possible if all questions are about that type.
        work
            Works the answer out of a plan, and of nothing else that differs from call to call.
        """
        node = self._root
        while len(node) != 1:
            value = node[4](plan)
            if value is not node[2]:  # most values are those of the last time: no need to hash them
                node[2], node[3] = value, node[1].setdefault(value, [_OPEN])
            node = node[3]
        if node[0] is _OPEN:
            self.worked_out += 1
            recorder = Recorder(plan)
            answer = work(cast("Asked", recorder))
            node = self._root
            for read, value in recorder.reads.items():
                if node[0] is _OPEN:
                    node[:] = [read, {}, _OPEN, None, _reader(read)]
                assert len(node) != 1 and node[0] == read, "what is read depends on more than what was read before"
                node = node[1].setdefault(value, [_OPEN])
            node[:] = [answer]
        return node[0]


def _reader(read: _Read) -> Callable[[Any], Any]:
    """What reads this of a plan."""
    if isinstance(read, str):
        return attrgetter(read)
    name, given, named = read
    return methodcaller(name, *given, **dict(named))


class _OfPlan(Protocol):
    """A dataclass of an instance: what is worked out of it depends on the plan, and on its other fields."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def instance(self) -> Any:
        """A :class:`dfopt.setting.instance.Instance`: setting and plan."""


Owner = TypeVar("Owner", bound=_OfPlan)
ReturnT = TypeVar("ReturnT")


@cache
def _others(of: type[Any]) -> tuple[str, ...]:
    """Names of the fields of a dataclass of an instance, but for the instance itself."""
    return tuple(field.name for field in fields(of) if field.name != "instance")


def under(owner: Owner, plan: Plan) -> Owner:
    """A copy of a dataclass of an instance under another plan, without cached values."""
    return replace(owner, instance=replace(owner.instance, plan=plan))


class by_reads(Generic[Owner, ReturnT]):
    """Decorator: a cached property shared by all instances whose plans agree in what it reads.

    Its other fields are part of the question.
    """

    def __init__(self, work: Callable[[Owner], ReturnT]) -> None:
        self.work, self.__doc__ = work, work.__doc__

    @overload
    def __get__(self, owner: None, of: type[Owner]) -> Self: ...
    @overload
    def __get__(self, owner: Owner, of: type[Owner]) -> ReturnT: ...
    def __get__(self, owner: Owner | None, of: type[Owner]) -> Self | ReturnT:
        if owner is None:
            return self
        others = (getattr(owner, name) for name in _others(of))
        question = owner.instance.setting.reads[self.work, *others]
        answer: ReturnT = question.answer(owner.instance.plan, lambda plan: self.work(under(owner, plan)))
        owner.__dict__[self.work.__name__] = answer  # from now on without asking: this class has no __set__
        return answer


def memoized(method: Callable[Concatenate[Any, P], ReturnT]) -> cached_property[Callable[P, ReturnT]]:
    """Decorator: a method that caches its results on its object, by arguments.

    Examples
    --------
    >>> class Squares:
    ...     asked = 0
    ...     @memoized
    ...     def of(self, number: int) -> int:
    ...         self.asked += 1
    ...         return number**2
    >>> squares = Squares()
    >>> squares.of(3), squares.of(3), squares.asked
    (9, 9, 1)
    """

    def of_object(owner: Any) -> Callable[P, ReturnT]:
        return cache(partial(method, owner))  # type: ignore[return-value]

    of_object.__doc__ = method.__doc__
    return cached_property(of_object)
