"""Append records to a log, and make the records durable."""
