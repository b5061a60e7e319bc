"""Answer what administrators ask: settings, log dirs, partitions, reassignments."""
