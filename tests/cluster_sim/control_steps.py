"""Deliver requests, cut connections, let controllers decide, and let operators ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cluster.pure import control_exchange as ce
from cluster_sim.steps_base import Step, StepsBase
from cluster_sim.world import SimController


class ControlSteps(StepsBase):
    """The steps of the network, of controllers and of operators."""

    # --- the network ---

    def find_deliver(self) -> Iterator[Step]:
        return ((index,) for index in range(len(self.world.net)))

    find_lose = find_double = find_deliver

    def do_deliver(self, index: int) -> None:
        if self.world.net:
            self.world.deliver(index)

    def do_double(self, index: int) -> None:
        if self.world.net:
            self.world.deliver(index, keep=True)

    def do_lose(self, index: int) -> None:
        if self.world.net:
            del self.world.net[index % len(self.world.net)]

    def find_cut(self) -> Iterator[Step]:
        return ((m,) for m in self.world.brokers if m not in self.world.cut)

    def find_part(self) -> Iterator[Step]:
        for m in self.world.brokers:
            for other in range(1, m):
                if (other, m) not in self.world.cut:
                    yield ((other, m),)

    def find_heal(self) -> Iterator[Step]:
        return ((who,) for who in sorted(self.world.cut, key=repr))

    def do_cut(self, who: Any) -> None:
        self.world.cut.add(who)

    do_part = do_cut

    def do_heal(self, who: Any) -> None:
        self.world.cut.discard(who)

    # --- controllers ---

    def _working(self) -> Iterator[tuple[int, SimController]]:
        for number, one in enumerate(self.world.controllers):
            if self.world.is_working(one):
                yield number, one

    def _room(self, number: int) -> SimController | None:
        controllers = self.world.controllers
        return controllers[number] if number < len(controllers) else None

    def _tell(self, number: int, event: Any) -> None:
        if (controller := self._room(number)) is not None:
            self.world.tell(controller, event)

    def find_decide(self) -> Iterator[Step]:
        for number, _ in self._working():
            for part in self.world.parts:
                yield number, part.number

    find_ask = find_decide

    def do_decide(self, number: int, part: int) -> None:
        self._tell(number, ce.Look(self.world.parts[part].key))

    def do_ask(self, number: int, part: int) -> None:
        self._tell(number, ce.AskAll(self.world.parts[part].key))

    def find_stops(self) -> Iterator[Step]:
        return ((number,) for number, _ in self._working())

    def do_stops(self, number: int) -> None:
        self._tell(number, ce.StopsDue())

    def find_refresh(self) -> Iterator[Step]:
        for number, one in self._working():
            if one.room.registrations != self.world.registrations or any(
                self._is_stale(one, part.number) for part in self.world.parts
            ):
                yield (number,)

    def _is_stale(self, controller: SimController, number: int) -> bool:
        part = self.world.parts[number]
        entry = controller.room.entries.get(part.key)
        if entry is None:
            return True
        known = entry.version, entry.topic, entry.config
        return known != (part.version, part.topic, self.world.config)

    def do_refresh(self, number: int) -> None:
        if (controller := self._room(number)) is not None:
            for part in self.world.parts:
                self.world.read(controller, part)

    def _suspicions(self, *, are_up: bool) -> Iterator[Step]:
        for number, one in self._working():
            for m, broker in self.world.brokers.items():
                if m in one.room.seen and broker.is_up == are_up:
                    yield number, m

    def find_suspect(self) -> Iterator[Step]:
        return self._suspicions(are_up=True)

    def find_refused(self) -> Iterator[Step]:
        return self._suspicions(are_up=False)

    def find_accepted(self) -> Iterator[Step]:
        for number, one in self._working():
            for m in one.room.gone:
                if self.world.brokers[m].is_up and m not in self.world.cut:
                    yield number, m

    def do_suspect(self, number: int, broker: int) -> None:
        self._tell(number, ce.ConnectionRefused(broker))

    do_refused = do_suspect

    def do_accepted(self, number: int, broker: int) -> None:
        self._tell(number, ce.ConnectionAccepted(broker))

    def find_controller(self) -> Iterator[Step]:
        return self._elections(has_one=True)

    def find_succeed(self) -> Iterator[Step]:
        return self._elections(has_one=False)

    def _elections(self, *, has_one: bool) -> Iterator[Step]:
        epoch = self.world.controller_epoch
        works = any(one.room.controller_epoch == epoch for _, one in self._working())
        if works == has_one:
            yield from self._near(is_up=True)

    def do_controller(self, host: int) -> None:
        self.world.elect_controller(host)

    do_succeed = do_controller

    def find_unheard(self) -> Iterator[Step]:
        yield ()

    def do_unheard(self) -> None:
        self.world.loses_answer = True

    find_slow = find_unheard

    def do_slow(self) -> None:
        self.world.is_slow = True

    def do_slow_read(self) -> None:
        self.world.is_read_late = True

    find_slow_read = find_unheard

    def find_hear_read(self) -> Iterator[Step]:
        if self.world.reads:
            yield ()

    def do_hear_read(self) -> None:
        if self.world.reads:
            self.world.hear_read()

    def find_hear(self) -> Iterator[Step]:
        if self.world.answers:
            yield ()

    def do_hear(self) -> None:
        if self.world.answers:
            self.world.hear()

    # --- the operator ---

    def _current(self) -> SimController | None:
        controllers = self.world.controllers
        return controllers[-1] if controllers and self.world.is_working(controllers[-1]) else None

    def find_minimum(self) -> Iterator[Step]:
        yield (3 - self.world.min_isr,)

    def do_minimum(self, min_isr: int) -> None:
        self.world.set_min_isr(min_isr)

    def find_flushing(self) -> Iterator[Step]:
        yield (not self.world.flushes,)

    def do_flushing(self, flushes: bool) -> None:
        """Change whether only flushed records count."""
        self.world.flushes = flushes
        self.world.settings_version = self.world.next_zxid()

    def find_allow(self) -> Iterator[Step]:
        yield (not self.world.is_unclean_allowed,)

    def do_allow(self, is_allowed: bool) -> None:
        """Change whether the topics may elect uncleanly."""
        self.world.is_unclean_allowed = is_allowed
        self.world.settings_version = self.world.next_zxid()

    def find_unclean(self) -> Iterator[Step]:
        if self._current() is not None:
            for part in self.world.parts:
                if part.state.leader == -1:
                    yield (part.number,)

    def do_unclean(self, part: int) -> None:
        if (controller := self._current()) is not None:
            self.world.is_unclean_step = True
            self.world.tell(controller, ce.ElectUncleanly(self.world.parts[part].key))
            self.world.is_unclean_step = False

    def find_prefer(self) -> Iterator[Step]:
        if self._current() is not None:
            for part in self.world.parts:
                yield from ((part.number, m) for m in (None, *part.state.replicas))

    def do_prefer(self, part: int, broker: int | None) -> None:
        """Let an operator ask that a broker leads, or the preferred one."""
        if (controller := self._current()) is not None:
            self.world.tell(controller, ce.ElectLeader(self.world.parts[part].key, broker))

    def find_reassign(self) -> Iterator[Step]:
        if self._current() is None:
            return
        for part in self.world.parts:
            replicas = part.state.replicas
            if part.state.target is not None:
                continue
            for new in self.world.brokers.keys() - set(replicas):
                for old in replicas:
                    yield part.number, (*(m for m in replicas if m != old), new)

    def do_reassign(self, part: int, target: tuple[int, ...]) -> None:
        if (controller := self._current()) is not None:
            self.world.tell(controller, ce.Reassign(self.world.parts[part].key, target))

    def find_cancel(self) -> Iterator[Step]:
        if self._current() is not None:
            for part in self.world.parts:
                if part.state.original is not None:
                    yield (part.number,)

    def do_cancel(self, part: int) -> None:
        if (controller := self._current()) is not None:
            self.world.tell(controller, ce.CancelReassignment(self.world.parts[part].key))

    def find_recreate(self) -> Iterator[Step]:
        if self._current() is not None:
            yield from ((part.number,) for part in self.world.parts)

    def do_recreate(self, number: int) -> None:
        """Delete a topic and create it again: requests about the old one are still under way."""
        world, controller = self.world, self._current()
        if controller is None or controller.room.controller_epoch != world.controller_epoch:
            return
        part = world.parts[number]
        world.read(controller, part)
        if part.key not in controller.room.entries:  # the read is late
            return
        replicas = part.state.target or part.state.replicas
        if controller.room.seen.keys() & set(replicas):  # a first ISR has a member
            world.tell(controller, ce.DeleteTopic(part.key))
            world.create(controller, part, replicas)
