"""Changes that administrators make of a cluster's topics, and how their settings reach the logs."""
