"""Change the topics of a cluster, and apply their settings to the logs."""
