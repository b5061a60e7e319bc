"""Register a broker in a cluster, and find the epoch since which each log dir lost nothing."""
