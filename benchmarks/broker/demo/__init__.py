"""Implement `make demo-broker`: the broker's main job on real data and a real client, with a kill.

ledger   which flights were acknowledged, and which the group got; every record is compared here
load     the producer: idempotent, lz4
group    the consumers of one group, each in a thread
steps    the steps in order; each returns its figures
summary  the printed page
"""
