"""Register a broker in a cluster, and find out since when its log dirs are whole."""
