"""Plan moves: choose the replicas to move, their targets, and the order of the moves."""
