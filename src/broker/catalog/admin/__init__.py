"""Changes of topics that clients ask for, with a cluster and without one."""
