"""Answer the requests of logins, and the requests about SCRAM credentials."""
