"""Characterise disks by what logs on them achieve: throughput, latency, recovery, moves.

cases     what is asked of the disks: phases, record sizes, flush policies, writers
bed       the directories under test, how fast they are, where stores are made in them
phases    one class a question: prepare, run (timed), finish
samples   every operation's start and latency, kept in a logstore topic: the trace
runner    runs the cases on a bed, and writes pytest-benchmark's JSON beside the trace
report/   Spark joins both, and makes tables, plots and a page of them
"""
