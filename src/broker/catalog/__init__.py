"""Know what this broker serves: its topics, its part in them, their settings, and producer ids."""
