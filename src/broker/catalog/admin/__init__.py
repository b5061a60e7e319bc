"""Make the changes of topics, ACLs, quotas and users that clients ask for."""
