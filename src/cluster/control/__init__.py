"""Run the rules of the controller: elections, the coordination store, requests to brokers."""
