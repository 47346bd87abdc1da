"""Which devices there are, which are free, and who holds the others."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ignite_scheduler.errors import InvariantError
from ignite_scheduler.model import Cluster, Device, Node
from ignite_scheduler.policy.candidates import Candidate
from ignite_scheduler.policy.pools import Pools, kind_pool, pools_of
from ignite_scheduler.policy.view import Needs


class Inventory:
    """Device bookkeeping of one controller.

    A device is *known* once it was in the cluster, *out* while its node is lost or it is at fault too often, *held*
    while a gang has it (also when it goes out under the gang), and *free* when it is none of the two. ``free`` and
    ``capacity`` count by pool, fine and kind pools alike; ``version`` changes whenever the set of devices in service
    does.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.version = 1
        self.out: set[str] = set()
        self.holder: dict[str, str] = {}
        self.num_free = 0
        self.num_present = 0
        self.free: dict[str, int] = {}
        self.capacity: dict[str, int] = {}
        self.pools: Pools
        self._needs: dict[tuple[tuple[str, int], ...], Needs] = {}
        self._index: dict[str, int] = {}
        self._ids: tuple[str, ...] = ()
        self._heaps: dict[str, list[int]] = {}
        self._pools_of_kind: dict[str, list[str]] = {}
        self._adopt(cluster)

    def _adopt(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pools = pools_of(cluster)
        self._needs = {}
        self._ids = tuple(device.id for device in cluster.devices)
        self._index = {device_id: index for index, device_id in enumerate(self._ids)}
        self._pools_of_kind = {}
        for pool, kind in self.pools.kind_of.items():
            self._pools_of_kind.setdefault(kind, []).append(pool)
        self._count()

    def _count(self) -> None:
        """Count anew after the set of devices has changed. O(devices)."""
        self.capacity = dict.fromkeys(self.pools.members, 0)
        self.free = dict.fromkeys(self.pools.members, 0)
        self._heaps = {pool: [] for pool in self.pools.kind_of}
        self.num_free = 0
        self.num_present = len(self._ids) - len(self.out)
        for index, device_id in enumerate(self._ids):
            if device_id in self.out:
                continue
            pool = self.pools.pool_of[device_id]
            kind = self.pools.kind_of[pool]
            self.capacity[pool] += 1
            self.capacity[kind] += 1
            if device_id not in self.holder:
                self.free[pool] += 1
                self.free[kind] += 1
                self.num_free += 1
                self._heaps[pool].append(index)  # ascending, hence a heap

    def copy(self) -> Inventory:
        """An independent inventory in the same state."""
        other = object.__new__(Inventory)
        other.__dict__.update(self.__dict__)
        other.out, other.holder = self.out.copy(), self.holder.copy()
        other.free, other.capacity = self.free.copy(), self.capacity.copy()
        other._heaps = {pool: heap.copy() for pool, heap in self._heaps.items()}
        return other

    def present(self) -> tuple[str, ...]:
        """Ids of the devices in service, in file order."""
        return tuple(device_id for device_id in self._ids if device_id not in self.out) if self.out else self._ids

    def needs(self, candidate: Candidate) -> Needs:
        """The counters that the candidate lowers."""
        found = self._needs.get(candidate.demand)
        if found is None:
            found = self._needs[candidate.demand] = self.pools.expand(candidate.demand)
        return found

    def needs_of_devices(self, device_ids: Iterable[str]) -> Needs:
        """The counters that rise when the devices come back."""
        counts = Counter(self.pools.pool_of[device_id] for device_id in device_ids if device_id not in self.out)
        return self.pools.expand(tuple(counts.items()))

    def knows(self, candidate: Candidate) -> bool:
        """Whether the candidate names only pools that exist."""
        return all(pool in self.pools.members for pool, _ in candidate.demand)

    def allocate(self, job_id: str, candidate: Candidate) -> tuple[str, ...]:
        """Take free devices for the candidate: in the order of its plan's devices, or of its demand.

        A fine pool gives its first free devices. A kind pool gives all from the fine pool that fits most tightly, or
        from as few as possible.

        Raises
        ------
        InvariantError
            There are not enough free devices.
        """
        taken = {pool: self._take(pool, count) for pool, count in candidate.demand}
        if candidate.plan is not None:
            supply = {pool: iter(ids) for pool, ids in taken.items()}
            device_ids = tuple(next(supply[self.pools.pool_of[each]]) for each in candidate.plan.device_ids)
        else:
            device_ids = tuple(device_id for pool, _ in candidate.demand for device_id in taken[pool])
        for device_id in device_ids:
            if device_id in self.holder:
                raise InvariantError(
                    f"device {device_id!r} is held by {self.holder[device_id]!r} and given to {job_id!r}"
                )
            self.holder[device_id] = job_id
        return device_ids

    def _take(self, pool: str, count: int) -> list[str]:
        if pool in self._heaps:
            return self._pop(pool, count)
        ids: list[str] = []
        while len(ids) < count:
            ids += self._pop(*self._next_pool(pool, count - len(ids)))
        return ids

    def _next_pool(self, kind: str, count: int) -> tuple[str, int]:
        """The fine pool to draw from next, and how many."""
        tight, largest = None, ""
        most = 0
        for pool in self._pools_of_kind.get(kind, ()):
            size = self.free[pool]
            if size >= count and (tight is None or size < self.free[tight]):
                tight = pool
            if size > most:
                most, largest = size, pool
        if tight is not None:
            return tight, count
        if not most:
            raise InvariantError(f"no free device of {kind!r} is left")
        return largest, most

    def _pop(self, pool: str, count: int) -> list[str]:
        heap = self._heaps[pool]
        if len(heap) < count:
            raise InvariantError(f"{count} devices of pool {pool!r} were given away, but only {len(heap)} are free")
        ids = [self._ids[heapq.heappop(heap)] for _ in range(count)]
        self.free[pool] -= count
        self.free[self.pools.kind_of[pool]] -= count
        self.num_free -= count
        return ids

    def release(self, device_ids: Iterable[str]) -> None:
        """Take devices back from their gang; those out of service stay out."""
        for device_id in device_ids:
            del self.holder[device_id]
            if device_id in self.out:
                continue
            pool = self.pools.pool_of[device_id]
            self.free[pool] += 1
            self.free[self.pools.kind_of[pool]] += 1
            self.num_free += 1
            heapq.heappush(self._heaps[pool], self._index[device_id])

    def put_out(self, device_ids: Iterable[str]) -> bool:
        """Take devices out of service; False if they all were out already."""
        fresh = [device_id for device_id in device_ids if device_id in self._index and device_id not in self.out]
        if not fresh:
            return False
        self.out.update(fresh)
        self.version += 1
        self._count()
        return True

    def devices_of(self, node: str) -> tuple[Device, ...]:
        """Known devices of the node; empty for an unknown one."""
        return next((each.devices for each in self.cluster.nodes if each.name == node), ())

    def join(self, name: str, devices: tuple[Device, ...]) -> bool:
        """Put a node's devices (back) into service; False if nothing changes.

        A known device that is not among them goes out. New or altered devices change the pools.
        """
        known = {device.id: device for device in self.devices_of(name)}
        joined = {device.id: device for device in devices}
        gone = known.keys() - joined.keys()
        altered = any(known.get(device.id) != device for device in devices)
        if not altered and not (joined.keys() & self.out) and gone <= self.out:
            return False
        self.out -= joined.keys()
        self.out |= gone
        self.version += 1
        if altered:
            merged = Node(name=name, devices=tuple((known | joined).values()))
            nodes = tuple(merged if node.name == name else node for node in self.cluster.nodes)
            self._adopt(replace(self.cluster, nodes=nodes if known else (*nodes, merged)))
        else:
            self._count()
        return True

    def check(self) -> None:
        """Count everything anew and compare. O(devices).

        Raises
        ------
        InvariantError
            A counter is wrong.
        """
        free: Mapping[str, int] = Counter(
            pool
            for device in self.cluster.devices
            if device.id not in self.out and device.id not in self.holder
            for pool in (self.pools.pool_of[device.id], kind_pool(device.kind))
        )
        wrong = [pool for pool in self.pools.members if free.get(pool, 0) != self.free[pool]]
        wrong += [pool for pool, heap in self._heaps.items() if len(heap) != self.free[pool]]
        if wrong:
            raise InvariantError(f"free devices are miscounted in the pools {wrong}")
