"""Share helpers between the suites: the independent reader, fault injectors, crash simulators."""
