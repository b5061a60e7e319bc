"""Measure the engine against peers, in alternating rounds of one process.

    make bench-peers                             every question, about four minutes
    pytest benchmarks/bench_read.py              one file of questions
    pytest benchmarks --scale tiny               sizes that only show that the suite works
    pytest benchmarks --bench-dir /mnt/disk      on another file system
    pytest benchmarks --strict-goals             exit code 1 when a goal is missed

Each file asks one kind of question: append, read, durable, recover. A round of the engine is
followed by a round of each peer, so that a machine's mood meets both; the figures are medians and
the ratio is the median of the ratios of the rounds. Memory is touched before the first figure.
"""
