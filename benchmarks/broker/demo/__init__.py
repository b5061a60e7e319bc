"""Implement `make demo-broker`: the broker's main job on real data and a real client, with a kill.

ledger   records which flights were acknowledged, and compares what the group got with the flights
load     the producer: idempotent, lz4
group    the consumers of one group, each in a thread
steps    the steps in order; each returns its figures
summary  the printed page
"""
