"""A broker's presence in a cluster: its registration, and since when its log dirs are whole."""
