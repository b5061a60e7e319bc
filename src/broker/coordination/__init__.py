"""Store small facts that brokers share, as ZooKeeper does: znodes, sessions and watches.

`verbs` defines the interface. `embedded` is the store of a single process. The embedded store has
files in every log dir.
"""
