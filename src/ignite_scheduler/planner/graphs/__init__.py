"""Branching models: orders of their layers, long chains made short, and stages that stand side by side.

:func:`.linear.search` looks for chains of stages over models of many layers, :func:`.search.search` for graphs of
stages.
"""
