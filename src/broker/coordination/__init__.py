"""Keep the small facts that brokers agree on: znodes, sessions and watches, as in ZooKeeper.

`verbs` defines the interface. `embedded` is the store of a single process, on files in every log
dir.
"""
