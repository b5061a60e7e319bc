"""Keep the topics, their settings, their leaders and the producer ids of this broker."""
