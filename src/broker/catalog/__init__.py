"""Keep the facts that this broker serves: topics, their settings, leaders, and producer ids."""
