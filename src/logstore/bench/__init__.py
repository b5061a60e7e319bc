"""Measure what logs achieve on given disks: throughput, latency, recovery, moves.

cases     what is measured: phases, record sizes, flush policies, writers
bed       the directories under test, their speed, and the stores in them
phases    one class per question: prepare, run (timed), finish
samples   the trace: every operation's start and latency, in a logstore topic
runner    runs the cases on a bed, and writes pytest-benchmark's JSON beside the trace
report/   joins the JSON and the trace with Spark, and makes tables, plots and a page
"""
