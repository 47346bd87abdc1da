"""Other people's planners, written from their papers' descriptions, as baselines."""

from ignite_scheduler.planner.peers.registry import PEERS, Peer, peer_plan

__all__ = ["PEERS", "Peer", "peer_plan"]
