"""The default policy: for all queued jobs at once, which option each should start on now, or wait for a better one.

Theory of operation
-------------------
One round is one multiple-choice knapsack
(:mod:`ignite_scheduler.policy.knapsack`) over the free devices: at most one option a job, each with the value of
starting it now.

*Value.* Where more jobs wait than can start, an option is worth the job's weight ÷ its seconds: the rate at which
weighted completions are earned, whose steepest ascent is the shortest-weighted-first order for equal gangs and the
best use of scarce devices for unlike ones. Where all waiting jobs can start, what matters is how long each takes: an
option is worth a constant less the weighted seconds, each counted once for the job and once more, by the share of the
cluster that it takes, for a job still to come. Priority p counts as weight · 2^p. Money and number of devices only
break ties.

*Deadlines.* The weighted tardiness that starting now avoids, against waiting for the next devices to come free,
outweighs all of the above. What those are depends on who starts now: where a choice makes a job late that it passes
over, later than was reckoned with, it is made anew with that finish.

*Deferral.* A job that would finish sooner by waiting for devices that are expected back, ends of this round's starts
included, does not start on a slow option. Devices that one job waits for are not counted on by another.

*No starvation.* A job that has waited longer than its patience, :meth:`Ignite.patience`, is overdue. Overdue jobs
start first, in the order in which they became so; the first that does not fit gets a reservation like the head of
EASY backfilling, and nothing may start that would delay it. Hence the bound: once a job is the foremost overdue one,
it starts no later than the present gangs end, if they end when expected.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ignite_scheduler.policy.knapsack import Choice, Selection, choose
from ignite_scheduler.policy.reservations import Reservation, releases_of, reserve
from ignite_scheduler.policy.view import Decision, Needs, Option, QueuedJob, Reason, Start, View, fits, take
from ignite_scheduler.units import format_duration

EXTERNALITY: Final = 0.5
"""How many jobs still to come a job in an idle cluster is taken to keep waiting, if it takes the whole cluster."""
LEAST_SHARE: Final = 1e-4
"""Least time that a job counts with, as a share of the longest option at hand."""
DEFERRAL_GAINS: Final = (0.1, 0.4)
"""Share by which waiting must shorten the time to the finish, if few and if many gangs run. What is good for one job
by itself crowds the fast devices, which the more jobs to come will want the more gangs there are."""
FEW_GANGS: Final = 4
"""Number of gangs at which the share is midway between the two.

The three figures were chosen on 108 random workloads of 4 to 20 jobs on 4 unlike devices, where shares from 0.1 to
0.3 were best and 0.5 was 5 % worse in mean JCT, and on 3,000 jobs at 40 to 70 % load on 128 devices of speeds 1 : 2,
where 0.3 to 0.4 were best and 0.1 was some 10 % worse."""
MAX_PRIORITY: Final = 20
"""Priorities beyond ± this count as this: 2^20 is already before everything else."""
TIE_BREAK: Final = 1e-7
"""Share of an option's value that money and number of devices may move."""
MOST_BEFORE: Final = 32
"""Jobs whose turn at devices that come back is reckoned exactly; those behind them are told by the work ahead of
them."""
_SPARE: Final = "reserved:"
"""Before a pool's id: its devices that a reservation leaves over."""


_Able = list[tuple[QueuedJob, list[Option]]]
_Worth = Callable[[QueuedJob, Option], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignite:
    """Joint choice over all queued jobs. See the module's text for what it optimises.

    Parameters
    ----------
    patience_factor, patience_least
        A job is overdue after waiting ``patience_factor`` × its fastest run, at least ``patience_least`` seconds.
    depth
        Jobs, in order of the queue, that are weighed in one round; overdue ones come on top.
    rounds
        How often a choice is made anew after jobs have decided to wait.
    """

    patience_factor: float = 5.0
    patience_least: float = 3600.0
    depth: int = 512
    rounds: int = 4
    name: str = "ignite"

    def patience(self, job: QueuedJob) -> float:
        """Seconds after which the waiting job is overdue."""
        return max(self.patience_least, self.patience_factor * job.options[0].seconds)

    def decide(self, view: View) -> Decision:
        """One joint choice; see the module's text."""
        if not view.num_free:
            return Decision(rest=Reason(code="busy", text="all devices are busy"), method="no free devices")
        free = dict(view.free)
        starts, reservation = self._overdue(view, free)
        started = {start.job_id for start in starts}
        jobs = self._weighed(view, free, started, reservation)
        waits: dict[str, Reason] = {}
        forbidden: set[int] = set()
        selection = Selection(chosen=(), value=0.0, bound=0.0, method="nothing fits")
        for _ in range(self.rounds):
            selection = self._select(view, starts, jobs, free, reservation, forbidden)
            new = _deferrals(view, starts, selection, jobs, free)
            if not new:
                break
            for job, option, text in new:
                forbidden.update(id(each) for each in job.options if each.seconds >= option.seconds)
                waits[job.job_id] = Reason(code="deferred", text=text)
        chosen = [Start(job_id=each.key[0].job_id, option=each.key[1]) for each in selection.chosen]
        reasons = {job_id: why for job_id, why in waits.items() if all(job_id != s.job_id for s in chosen)}
        rest = Reason(code="busy", text="waits for devices: those that are free do more good for other jobs")
        if reservation is not None:
            reasons[reservation.job_id] = Reason(
                code="reserved", text="has waited longest beyond its patience and has the next devices reserved"
            )
        return Decision(
            starts=(*starts, *chosen), reasons=reasons, rest=rest, gap=selection.gap, method=selection.method
        )

    def _select(
        self,
        view: View,
        starts: list[Start],
        jobs: list[QueuedJob],
        free: dict[str, int],
        reservation: Reservation | None,
        forbidden: set[int],
    ) -> Selection:
        """The joint choice; made anew, with what it has shown, where it would make a job late that it passes over."""
        able = [
            (job, [option for option in job.options if id(option) not in forbidden and fits(option.needs, free)])
            for job in jobs
        ]
        able = [(job, options) for job, options in able if options]
        pressed = [job for job, _ in able if job.terms.deadline is not None]
        finishes = {job.job_id: _finish_if_passed_over(job, view, able, free) for job in pressed}
        selection = _choose(view, able, free, reservation, finishes)
        for _ in range(self.rounds - 1):
            late = _late_behind(view, starts, selection, pressed, free, finishes)
            if not late:
                break
            finishes |= late
            selection = _choose(view, able, free, reservation, finishes)
        return selection

    def _overdue(self, view: View, free: dict[str, int]) -> tuple[list[Start], Reservation | None]:
        """Starts of overdue jobs, the longest overdue first, and the reservation of the first that must wait."""
        due = sorted(
            ((job.queued_at + self.patience(job), job.serial, job) for job in view.queue),
            key=lambda entry: entry[:2],
        )
        starts: list[Start] = []
        for at, _, job in due:
            if at > view.now:
                break
            promise = reserve(job, view.now, free, releases_of(view, starts))
            if promise is None:
                continue  # no end that is known makes room for it
            if promise.start > view.now or not fits(promise.option.needs, free):
                return starts, promise
            take(promise.option.needs, free)
            starts.append(Start(job_id=job.job_id, option=promise.option))
        return starts, None

    def _weighed(
        self, view: View, free: Mapping[str, int], started: set[str], reservation: Reservation | None
    ) -> list[QueuedJob]:
        """The jobs of this round: the first in the queue that could start now."""
        jobs: list[QueuedJob] = []
        for job in view.queue:
            if len(jobs) == self.depth:
                break
            if job.job_id in started or (reservation is not None and job.job_id == reservation.job_id):
                continue
            if any(fits(option.needs, free) for option in job.options):
                jobs.append(job)
        return jobs


def _choose(
    view: View, able: _Able, free: dict[str, int], reservation: Reservation | None, finishes: Mapping[str, float]
) -> Selection:
    """The joint choice: first as if devices were scarce; if all jobs start, again as if they were not.

    ``finishes``: id of each job with a deadline → its finish if it does not start now.
    """
    capacity = dict(free)
    if reservation is not None:
        capacity.update({_SPARE + pool: count for pool, count in reservation.spare.items()})
    urgency = _urgency(view, able, finishes)
    total = view.num_devices
    for worth in (_worth_crowded(able), _worth_roomy(able, total)):
        choices = [
            [
                Choice(
                    key=(job, option),
                    value=(worth(job, option) + urgency.get(id(option), 0.0)) * _thrift(option, total),
                    needs=_needs(option, view.now, reservation),
                )
                for option in options
            ]
            for job, options in able
        ]
        selection = choose(choices, capacity)
        if len(selection.chosen) < len(able):
            break
    return selection


def _worth_crowded(able: _Able) -> _Worth:
    """Weighted completions per second, the largest being 1.

    A job with (next to) nothing left, such as one whose run was killed after its last save, counts as if it took
    :data:`LEAST_SHARE` of the longest: worth the most, but not so much that all others vanish beside it.
    """
    floor = LEAST_SHARE * max((option.seconds for _, options in able for option in options), default=0.0) or 1.0

    def pace(job: QueuedJob, option: Option) -> float:
        return _weight(job) / max(option.seconds, floor)

    most = max((pace(job, options[0]) for job, options in able), default=1.0)
    return lambda job, option: pace(job, option) / most


def _worth_roomy(able: _Able, total: int) -> _Worth:
    """A constant less the weighted seconds that the option costs this job and those to come; between 0 and 1."""

    def cost(job: QueuedJob, option: Option) -> float:
        return _weight(job) * option.seconds * (1.0 + EXTERNALITY * option.candidate.num_devices / total)

    most = max((cost(job, option) for job, options in able for option in options), default=1.0) or 1.0
    # starting anything is worth more than what others could gain from its devices: no job is left out for their sake
    return lambda job, option: 1.0 - cost(job, option) / most / (1 + len(able))


def _urgency(view: View, able: _Able, finishes: Mapping[str, float]) -> dict[int, float]:
    """By id of option: weighted tardiness that starting on it now avoids; the largest counts ten times all else."""
    late: dict[int, float] = {}
    pressed = [(job, options) for job, options in able if job.terms.deadline is not None]
    for job, options in pressed:
        waiting = max(0.0, finishes[job.job_id] - job.deadline_at)
        for option in options:
            starting = max(0.0, view.now + option.seconds + option.margin - job.deadline_at)
            late[id(option)] = _weight(job) * (waiting - starting)
    most = max(map(abs, late.values()), default=0.0)
    return {option: 10.0 * len(able) * each / most for option, each in late.items()} if most > 0 else {}


def _finish_if_passed_over(job: QueuedJob, view: View, able: _Able, free: Mapping[str, int]) -> float:
    """The earliest finish of the job if it does not start now, at the late end of its range.

    Nothing changes before the next end.
    """
    others = [view.now + options[0].seconds for other, options in able if other is not job]
    others += [max(view.now, view.releases[0][0])] if view.releases else []
    after = min(others, default=view.now + job.options[0].seconds)
    first = reserve(job, view.now, free, releases_of(view))
    if first is None:
        return after + job.options[0].seconds + job.options[0].margin
    return max(first.start, after) + first.option.seconds + first.option.margin


def _late_behind(
    view: View,
    starts: list[Start],
    selection: Selection,
    pressed: list[QueuedJob],
    free: Mapping[str, int],
    finishes: Mapping[str, float],
) -> dict[str, float]:
    """Finishes of jobs that the selection passes over, makes late, and makes later than was reckoned with.

    What a job waits for is known only when it is chosen who takes the free devices.
    """
    started = {each.key[0].job_id for each in selection.chosen}
    passed = [job for job in pressed if job.job_id not in started]
    if not passed:
        return {}
    left, coming = _beside(view, starts, selection, free)
    late = {}
    for job in passed:
        first = reserve(job, view.now, left, coming)
        finish = 0.0 if first is None else first.start + first.option.seconds + first.option.margin
        if finish > max(job.deadline_at, finishes[job.job_id]):
            late[job.job_id] = finish
    return late


def _beside(
    view: View, starts: list[Start], selection: Selection, free: Mapping[str, int]
) -> tuple[dict[str, int], list[tuple[float, Needs]]]:
    """What the selection leaves free, and what comes free when, the ends of this round's starts included."""
    left = dict(free)
    for each in selection.chosen:
        take(each.key[1].needs, left)
    chosen = (Start(job_id=each.key[0].job_id, option=each.key[1]) for each in selection.chosen)
    return left, list(releases_of(view, [*starts, *chosen]))


def _deferrals(
    view: View, starts: list[Start], selection: Selection, jobs: list[QueuedJob], free: Mapping[str, int]
) -> list[tuple[QueuedJob, Option, str]]:
    """Chosen (job, option) pairs that had better wait, and why.

    Goes through the jobs in the order in which devices would be given to them; each takes its place in a ledger of
    what is coming free, so that two jobs never wait for the same devices. Behind :data:`MOST_BEFORE` of them, a job's
    turn is put at the time that the cluster takes for all work ahead of it.
    """
    chosen = {each.key[0].job_id: each.key[1] for each in selection.chosen}
    hopeful = {each.key[0].job_id for each in selection.chosen if _can_gain(*each.key)}
    if not hopeful:
        return []
    left, coming = _beside(view, starts, selection, free)
    line = sorted(
        (job for job in jobs if job.job_id in hopeful or job.job_id not in chosen),
        key=lambda job: (job.options[0].seconds / _weight(job), job.serial),
    )
    found = []
    share = _gain_to_defer(len(view.running))
    ahead = 0.0
    for index, job in enumerate(line):
        option = chosen.get(job.job_id)
        best = job.options[0]
        if index < MOST_BEFORE:
            later = reserve(job, view.now, left, coming)
            if later is None:
                continue
            start, end = later.start, later.start + later.option.seconds
        else:
            later, start = None, view.now + ahead / view.num_devices
            end = start + best.seconds
        ahead += best.seconds * best.candidate.num_devices
        if option is not None:
            if start <= view.now or end - view.now >= option.seconds * (1.0 - share):
                continue
            text = (
                f"would finish {format_duration(view.now + option.seconds - end)} sooner on devices that are expected "
                f"back in {format_duration(start - view.now)} than on those that are free"
            )
            found.append((job, option, text))
        if later is not None:
            taken = tuple((pool, -count) for pool, count in later.option.needs)
            for claim in ((start, taken), (end, later.option.needs)):
                insort(coming, claim, key=lambda release: release[0])
    return found


def _gain_to_defer(num_gangs: int) -> float:
    few, many = DEFERRAL_GAINS
    return many - (many - few) / (1.0 + num_gangs / FEW_GANGS)


def _can_gain(job: QueuedJob, option: Option) -> bool:
    return job.options[0].seconds < option.seconds


def _weight(job: QueuedJob) -> float:
    return float(job.terms.weight * 2.0 ** max(-MAX_PRIORITY, min(MAX_PRIORITY, job.terms.priority)))


def _thrift(option: Option, total: int) -> float:
    """A factor just below 1 that falls with the devices and the money that the option takes, where that is known."""
    money = (option.candidate.price or 0.0) * option.seconds
    return 1.0 - TIE_BREAK * (option.candidate.num_devices / total + money / (1.0 + money))


def _needs(option: Option, now: float, reservation: Reservation | None) -> Needs:
    """What the option takes of the free devices, and of a reservation's spare ones if it outlives its start."""
    if reservation is None or not reservation.outlasts(option, now):
        return option.needs
    return (*option.needs, *((_SPARE + pool, count) for pool, count in option.needs))
