"""Work on replicas and their log dirs. If one log dir hangs, the others do not wait for it."""
