"""Measure the engine against peers, in alternating rounds of one process.

    make bench-peers                             every question, about four minutes
    pytest benchmarks/bench_read.py              one file of questions
    pytest benchmarks --scale tiny               sizes that only show that the suite works
    pytest benchmarks --bench-dir /mnt/disk      on another file system
    pytest benchmarks --strict-goals             exit code 1 when a goal is missed

Each file asks one kind of question: append, read, durable, recover. Each round of the engine is
followed by a round of each peer, so that a change in the machine's speed affects both. The figures
are medians, and the ratio is the median of the rounds' ratios. Memory is touched before the first
measurement, so that no round pays for the first access.
"""
