"""Run the controller: its rules, its use of the coordination store, and its requests to brokers."""
