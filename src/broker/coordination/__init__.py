"""Store the small facts that brokers share in znodes, with sessions and watches, as ZooKeeper does.

`verbs` defines the interface. `embedded` is the store of a single process, on files in every log
dir.
"""
