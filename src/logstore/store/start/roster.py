"""Decide at start what each configured directory is: member, new, foreign, swapped or damaged.

`decide` is a pure function from `DirFacts` to a `Roll`. `identity` reads the `DirFacts` before the
decision, and writes the decided identities after it. While the store runs, `dirs/membership`
changes the roster.

    every dir bare                       form a new store
    all formatted dirs still forming     the last start crashed while forming: complete it
    formatted, our store, in the roster  serve
    bare, in an existing store           offline, because an empty mount point is also bare;
                                         with `format_new`: a new member
    bare, disk in fstab but not mounted  offline; if no dir is formatted: refuse to open; with
                                         `format_new`: like any bare dir
    damaged `meta.properties`            find out which missing member it is: from the rest of this
                                         file, from its lock file, or because only one is missing
    another store, Kafka, later version  offline
    one directory id twice               refuse to open: it is unknown which dir is right
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from logstore.disk.documents.meta_properties import Hint, MetaProperties
from logstore.errors import LogDirIdentityError
from logstore.store.start.refusals import FORMAT_REMEDY, TAKE_BACK, Refused


class Found(enum.Enum):
    """The kinds of contents that a start can find at a configured path."""

    FORMATTED = "formatted"
    DAMAGED = "damaged"
    BARE = "bare"
    ABSENT = "absent"
    BAD = "bad"


class DirFacts(NamedTuple):
    """The contents that a start has found at one configured path.

    Attributes:
        unmounted: for an empty dir, the mount point in fstab at or above the dir, if nothing is
            mounted there now.
        last_paths: the last path that this dir has recorded for the id of each other log dir.
        nested: for a dir without identity, why it must not become a log dir; "" if that is allowed.
    """

    path: str
    found: Found
    meta: MetaProperties | None = None
    hint: Hint = Hint(None, None)
    has_replicas: bool = False
    reason: str = ""
    unmounted: str | None = None
    last_paths: Mapping[str, str] = {}
    nested: str = ""


class Member(NamedTuple):
    """A dir that works, its identity, and whether the identity must be written."""

    path: str
    meta: MetaProperties
    is_changed: bool
    is_new: bool
    warning: str = ""


class Roll(NamedTuple):
    """The decision about all configured dirs."""

    members: tuple[Member, ...]
    refused: tuple[Refused, ...]
    missing_ids: tuple[str, ...]
    is_new_store: bool


def known_paths(facts: Iterable[DirFacts]) -> dict[str, str]:
    """Return each log dir's last known path, which the dirs with the latest roster recorded."""
    told: dict[str, str] = {}
    for fact in sorted(facts, key=lambda fact: fact.meta.roster_epoch if fact.meta else -1):
        told |= fact.last_paths
    return told


def decide(
    facts: Sequence[DirFacts], *, broker_id: int | None, format_new: bool, new_id: Callable[[], str]
) -> Roll:
    """Decide about all configured dirs together.

    Raises:
        LogDirIdentityError: no decision is safe; the error says what to do.
    """
    formatted = [fact for fact in facts if fact.meta is not None]
    _refuse_twins(formatted)
    was_ours = [fact for fact in facts if _was_ours(fact)]
    bare = [fact for fact in facts if fact.found in (Found.BARE, Found.ABSENT)]
    bare = [fact for fact in bare if fact not in was_ours]
    bad = [fact for fact in facts if fact.found is Found.BAD]
    if formatted:
        return _Existing(facts, formatted, was_ours, bare, broker_id, format_new, new_id).decide()
    if was_ours:
        return _without_any_identity(was_ours, bare, bad, broker_id, format_new, new_id)
    return _new_store(bare, bad, broker_id, format_new, new_id)


def _was_ours(fact: DirFacts) -> bool:
    """Check whether a dir without a valid `meta.properties` is known to have been a log dir."""
    return fact.found is Found.DAMAGED or (
        fact.found is Found.BARE and (fact.has_replicas or fact.hint.directory_id is not None)
    )


def _refuse_twins(formatted: Sequence[DirFacts]) -> None:
    """Refuse two paths with one identity: a dir was copied, or a disk is mounted twice."""
    paths: dict[str, str] = {}
    for fact in formatted:
        assert fact.meta is not None
        other = paths.setdefault(fact.meta.directory_id, fact.path)
        if other != fact.path:
            raise LogDirIdentityError(
                path=fact.path,
                reason=f"it has the same directory id as {other} ({fact.meta.directory_id}): a "
                "disk is mounted twice, or a log dir was copied; leave out one of the two "
                "paths",
            )


def _refused_bad(bad: Sequence[DirFacts]) -> list[Refused]:
    return [Refused(fact.path, fact.reason, False) for fact in bad]


def _new_store(
    bare: Sequence[DirFacts],
    bad: Sequence[DirFacts],
    broker_id: int | None,
    format_new: bool,
    new_id: Callable[[], str],
) -> Roll:
    """Form a new store; if a dir is unreadable or unmounted, require `format_new`.

    An unreadable or unmounted dir may belong to an existing store.
    """
    unmounted = [fact for fact in bare if fact.unmounted]
    if unmounted and not format_new:
        raise LogDirIdentityError(
            path=unmounted[0].path,
            reason=f"{not_mounted(*unmounted)}; no other log dir is formatted, so it is unknown "
            f"whether this is a new store: {FORMAT_REMEDY}",
        )
    if bad and bare and not format_new:
        raise LogDirIdentityError(
            path=bad[0].path,
            reason=f"{bad[0].reason}; no other log dir is formatted, so it is unknown whether this "
            "is a new store: repair this dir, leave it out, or pass format_new=True",
        )
    cluster_id = new_id()
    roster = tuple(new_id() for _ in bare)
    members = [
        Member(
            fact.path,
            MetaProperties(cluster_id, broker_id or 0, directory_id, 1, roster, True),
            is_changed=True,
            is_new=True,
        )
        for fact, directory_id in zip(bare, roster, strict=True)
    ]
    return Roll(tuple(members), tuple(_refused_bad(bad)), (), bool(members))


def _without_any_identity(
    was_ours: Sequence[DirFacts],
    bare: Sequence[DirFacts],
    bad: Sequence[DirFacts],
    broker_id: int | None,
    format_new: bool,
    new_id: Callable[[], str],
) -> Roll:
    """If a store has lost every `meta.properties`, restore its identities from other files."""
    known = [fact.hint.cluster_id for fact in was_ours if fact.hint.cluster_id]
    cluster_id = Counter(known).most_common(1)[0][0] if known else new_id()
    joining = list(bare) if format_new else []
    ids: dict[str, str] = {}
    for fact in was_ours:
        hinted = fact.hint.directory_id
        ids[fact.path] = hinted if hinted and hinted not in ids.values() else new_id()
    for fact in joining:
        ids[fact.path] = new_id()
    roster = tuple(ids.values())
    members = []
    for fact in [*was_ours, *joining]:
        meta = MetaProperties(cluster_id, broker_id or 0, ids[fact.path], 1, roster, False)
        warning = "" if fact in joining else f"{fact.path}: its meta.properties {_lost(fact)}"
        members.append(Member(fact.path, meta, True, fact in joining, warning))
    refused = _refused_bad(bad)
    if not format_new:
        refused += [_bare_refusal(fact) for fact in bare]
    return Roll(tuple(members), tuple(refused), (), False)


def _lost(fact: DirFacts) -> str:
    what = "was damaged" if fact.found is Found.DAMAGED else "was gone"
    return f"{what}; the store's owner rewrites it"


def not_mounted(*facts: DirFacts) -> str:
    """Name the fstab mount points above empty dirs where nothing is mounted; return "" if none."""
    points = sorted({fact.unmounted for fact in facts if fact.unmounted})
    is_one = len(points) == 1
    told = f"{', '.join(points)} {'is' if is_one else 'are'} listed in /etc/fstab and "
    return f"{told}{'is' if is_one else 'are'} not mounted" if points else ""


def _bare_refusal(fact: DirFacts) -> Refused:
    what = "there is no such directory" if fact.found is Found.ABSENT else "it is not formatted"
    reason = not_mounted(fact) or f"{what}, although the store is not new"
    is_empty = fact.found is Found.BARE and not fact.unmounted
    return Refused(fact.path, reason, True, FORMAT_REMEDY, is_empty=is_empty)


class _Existing:
    """Decides about a store in which at least one dir has an identity."""

    def __init__(
        self,
        facts: Sequence[DirFacts],
        formatted: Sequence[DirFacts],
        was_ours: Sequence[DirFacts],
        bare: Sequence[DirFacts],
        broker_id: int | None,
        format_new: bool,
        new_id: Callable[[], str],
    ) -> None:
        self.facts, self.was_ours, self.bare = facts, was_ours, bare
        self.format_new, self.new_id = format_new, new_id
        self.cluster_id = self._choose_cluster(formatted)
        ours = [fact for fact in formatted if fact.meta and fact.meta.cluster_id == self.cluster_id]
        self.metas = {fact.path: fact.meta for fact in ours if fact.meta is not None}
        self.epoch = max(meta.roster_epoch for meta in self.metas.values())
        newest = [meta for meta in self.metas.values() if meta.roster_epoch == self.epoch]
        self.is_forming = all(meta.is_forming for meta in self.metas.values())
        self.broker_id = newest[0].broker_id
        if broker_id is not None and broker_id != self.broker_id:
            raise LogDirIdentityError(
                path=ours[0].path,
                reason=f"broker id {self.broker_id} is recorded, but {broker_id} is configured",
            )
        # Rosters with the same epoch: each was changed while the dirs of the others were missing.
        # So the new roster gets the members of all newest rosters.
        self.roster = list(dict.fromkeys(id_ for meta in newest for id_ in meta.roster))
        self.is_roster_changed = any(list(meta.roster) != self.roster for meta in newest)
        self.ids: dict[str, str] = {}
        self.new_paths: list[str] = []
        self.warnings: dict[str, str] = {}
        self.refused: list[Refused] = []

    def _choose_cluster(self, formatted: Sequence[DirFacts]) -> str:
        """Choose the store to which most dirs belong; refuse two stores with equally many dirs."""
        counts = Counter(fact.meta.cluster_id for fact in formatted if fact.meta).most_common()
        if len(counts) > 1 and counts[0][1] == counts[1][1]:
            by_cluster = {fact.meta.cluster_id: fact.path for fact in formatted if fact.meta}
            first, second = counts[0][0], counts[1][0]
            raise LogDirIdentityError(
                path=by_cluster[second],
                reason=f"its store is {second}, but {by_cluster[first]} is in store {first}: leave "
                "out one of these two log dirs",
            )
        return counts[0][0]

    def decide(self) -> Roll:
        """Decide about the dirs: first about formatted dirs, then about damaged and bare dirs."""
        for fact in self.facts:
            if fact.found is Found.BAD:
                self.refused.append(Refused(fact.path, fact.reason, False))
            elif fact.meta is not None:
                self._formatted(fact, fact.meta)
        if self.is_forming:
            self._complete_forming()
        else:
            self._match_damaged()
            for fact in self.bare:
                self._bare(fact)
        return self._roll()

    def _formatted(self, fact: DirFacts, meta: MetaProperties) -> None:
        remedy = ""
        if meta.cluster_id != self.cluster_id:
            reason = (
                f"it belongs to another store ({meta.cluster_id}, not {self.cluster_id}): a "
                "foreign or swapped disk; mount the right disk here"
            )
        elif meta.directory_id in self.roster:
            self.ids[fact.path] = meta.directory_id
            return
        elif self.format_new:
            self._join(fact.path, meta.directory_id)
            return
        else:
            reason = (
                f"its directory id {meta.directory_id} is not in the roster of the store: it was "
                "removed or replaced"
            )
            remedy = f"leave it out, or {TAKE_BACK}"
        self.refused.append(Refused(fact.path, reason, True, remedy))

    def _gaps(self) -> list[str]:
        taken = set(self.ids.values())
        return [id_ for id_ in self.roster if id_ not in taken]

    def _join(self, path: str, directory_id: str) -> None:
        self.ids[path] = directory_id
        self.roster.append(directory_id)
        self.is_roster_changed = True

    def _complete_forming(self) -> None:
        """Complete the forming of a store after a crash; all dirs join, because no dir has data."""
        gaps = self._gaps()
        for fact in [*self.was_ours, *self.bare]:
            if fact.unmounted and not self.format_new:
                self.refused.append(_bare_refusal(fact))
                continue
            self.ids[fact.path] = gaps.pop(0) if gaps else self.new_id()
            self.new_paths.append(fact.path)
        roster = list(self.ids.values())
        if roster != self.roster:
            self.roster, self.is_roster_changed = roster, True

    def _match_damaged(self) -> None:
        """For each dir without its identity, find out which member the dir is."""
        unsure = []
        for fact in self.was_ours:
            if fact.hint.directory_id in self._gaps():
                assert fact.hint.directory_id is not None
                self.ids[fact.path] = fact.hint.directory_id
                self.warnings[fact.path] = f"{fact.path}: its meta.properties {_lost(fact)}"
            else:
                unsure.append(fact)
        gaps = self._gaps()
        if len(unsure) == 1 and len(gaps) == 1 and not _is_of_another(unsure[0], self.cluster_id):
            fact = unsure.pop()
            self.ids[fact.path] = gaps[0]
            self.warnings[fact.path] = f"{fact.path}: its meta.properties {_lost(fact)}"
        for fact in unsure:
            if self.format_new:
                self._join(fact.path, self.new_id())
                self.warnings[fact.path] = f"{fact.path}: its meta.properties {_lost(fact)}"
            else:
                reason = (
                    f"its meta.properties is lost ({fact.reason or 'it is gone'}), and nothing "
                    "shows which log dir of the store it is"
                )
                self.refused.append(Refused(fact.path, reason, True, FORMAT_REMEDY))

    def _bare(self, fact: DirFacts) -> None:
        if not self.format_new:
            self.refused.append(_bare_refusal(fact))
            return
        self._join(fact.path, self.new_id())
        self.new_paths.append(fact.path)

    def _roll(self) -> Roll:
        epoch = self.epoch + 1 if self.is_roster_changed else self.epoch
        members = []
        for fact in self.facts:
            if fact.path not in self.ids:
                continue
            meta = MetaProperties(
                self.cluster_id,
                self.broker_id,
                self.ids[fact.path],
                epoch,
                tuple(self.roster),
                self.is_forming,
            )
            members.append(
                Member(
                    fact.path,
                    meta,
                    is_changed=meta != fact.meta,
                    is_new=fact.path in self.new_paths,
                    warning=self.warnings.get(fact.path, ""),
                )
            )
        refused = tuple(self._with_missing(refusal) for refusal in self.refused)
        return Roll(tuple(members), refused, tuple(self._gaps()), self.is_forming)

    def _with_missing(self, refusal: Refused) -> Refused:
        """If only one missing log dir was last at the path of a refused dir, add its id."""
        paths = known_paths(fact for fact in self.facts if fact.path in self.metas)
        here = [id_ for id_ in self._gaps() if paths.get(id_) == refusal.path]
        return refusal._replace(missing_id=here[0]) if len(here) == 1 else refusal


def _is_of_another(fact: DirFacts, cluster_id: str) -> bool:
    """Check whether the readable part of a damaged identity has the id of another store."""
    return fact.hint.cluster_id is not None and fact.hint.cluster_id != cluster_id
