"""Maintain a running store: the thread of each log dir, the work of this thread, the listeners."""
