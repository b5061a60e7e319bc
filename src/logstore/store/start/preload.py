"""Import the modules that an open store may need later.

An import opens files. If the process has no free descriptor, a `flush` or `close` that first
imports a module fails, and the error names the module. So opening a store imports all modules that
may be needed later. `import logstore` does not import modules that are needed only later, so that
this import stays cheap. The modules of an extra are imported when a log that needs them is opened.
"""

from __future__ import annotations

import logging  # noqa: F401

from logstore.log import log_facts, view  # noqa: F401
from logstore.log.compaction import compaction  # noqa: F401
from logstore.log.encoded import (  # noqa: F401
    follower_appends,
    idempotent_producer,
    markers,
)
from logstore.log.producers import kafka_snapshots, snapshots, stability  # noqa: F401
from logstore.log.read import (  # noqa: F401
    aborted_index,
    file_range,
    raw,
    tail,
    time_search,
    transactions,
)
from logstore.log.recovery import open_log, repair, verification  # noqa: F401
from logstore.log.removal import new_start, retention, truncation  # noqa: F401
from logstore.log.write import (  # noqa: F401
    appender,
    configuration,
    group_commit,
    high_watermark,
)
from logstore.store import creation, describe, placement, recovery_report  # noqa: F401
from logstore.store.admin import server  # noqa: F401
from logstore.store.dirs import closing, dir_return, shutdown  # noqa: F401
from logstore.store.start import fork, listing  # noqa: F401
from logstore.store.topics import topic_creation  # noqa: F401
from logstore.store.upkeep import keeper, promotion  # noqa: F401
