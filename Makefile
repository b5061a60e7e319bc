# Everything runs in .venv, which each target makes for itself: Python 3.11 or later and make are
# all that is needed. `make` prints this list.

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# Two a core: many tests wait for a disk, a Java process or a process of their own.
TOGETHER := -n $$((2 * $$(getconf _NPROCESSORS_ONLN))) -m "not alone"
PEERS := $(addprefix benchmarks/bench_,append.py durable.py read.py recover.py)
PEERS_RUN := bench-peers.json
MAKEFLAGS += --no-print-directory
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: kill-transactions bench-tls browser secure-broker secure-cluster broker-clients fuzz fuzz-broker kafka-parity kill-broker fuzz-batches fuzz-frames kafka-damage kafka-interop help demo demo-broker demo-cluster bench-broker test tests-together tests-alone quick lint format bench-peers bench-move bench-kafka bench-history bench-gate bench-layouts kill kill-moves soak soak-moves media crash faults startup-model io-errors interrupts exhaustion hanging-start small-files build tools clean
SPARK_KILL_RUN := LOGSTORE_SPARK_KILLS=20 LOGSTORE_SPARK_CUT_STEP=1
.PHONY: kafka-hands consumer-groups bench-cluster cluster-sim kill-cluster jepsen jepsen-transactions operate-cluster bench-compaction bench-spark bench-spark-brokers bench-kafka-spark spark-kill spark-cluster spark-brokers spark-fuzz

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' \
	  | awk -F '\t' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: $(VENV)/stamp-demo ## the main job on real data: 336,776 flights, a SIGKILL, a recovery
	@$(BIN)/logstore demo

demo-cluster: $(VENV)/stamp-cluster ## ZooKeeper and three brokers: one is killed, one loses a disk, one is frozen (SIGSTOP)
	@$(BIN)/python -m benchmarks.cluster --scale $(or $(SCALE),full)

demo-broker: $(VENV)/stamp-broker ## the broker with a real client: flights, a group, a move, a SIGKILL
	@$(BIN)/python -m benchmarks.broker.demo --scale $(or $(SCALE),full)

test: $(VENV)/stamp-lint tools ## all tests and lint, as CI runs them
	@$(MAKE) -j2 lint tests-together
	@$(MAKE) tests-alone

tests-together: $(VENV)/stamp-lint ## the tests that may run beside each other, on all cores
	@$(PYTEST) $(TOGETHER)

tests-alone: $(VENV)/stamp-lint ## the tests that measure time, one after another
	@$(PYTEST) -m alone $$(grep -rl --include='test_*.py' 'pytest\.mark\.alone' tests)

quick: $(VENV)/stamp-test ## the tests of a minute: no kills, no flips, no power cuts, no disks
	@$(PYTEST) $(TOGETHER) --ignore=tests/kill --ignore=tests/media --ignore=tests/crash \
	  --ignore=tests/io_errors --ignore=tests/integration

lint: $(VENV)/stamp-lint ## ruff and mypy --strict over the whole tree
	@$(BIN)/ruff check
	@$(BIN)/mypy

bench-peers: $(VENV)/stamp-bench ## this engine against LMDB, SQLite, RocksDB, Arrow IPC, raw calls
	@$(PYTEST) $(PEERS) --benchmark-json=$(PEERS_RUN)

bench-history: $(VENV)/stamp-bench ## add the last bench-peers to the history, and draw it
	@$(BIN)/python -m benchmarks.history add $(PEERS_RUN)
	@$(BIN)/python -m benchmarks.history page bench-history.html

bench-gate: $(VENV)/stamp-bench ## fail where a ratio of the last bench-peers fell
	@$(BIN)/python -m benchmarks.history gate $(PEERS_RUN)

bench-layouts: $(VENV)/stamp-layouts ## one disk, JBOD and RAID on loop disks, and the page (root)
	@scripts/install-tools.sh btrfs
	@$(BIN)/python -m benchmarks.layouts --out bench-layouts --plan $(or $(LOGSTORE_LAYOUTS),short)

bench-move: $(VENV)/stamp-bench ## moves between two file systems (LOGSTORE_MOVE_TARGET, SCALE=small)
	@$(PYTEST) benchmarks/bench_move.py --scale $(or $(SCALE),full)

bench-compaction: $(VENV)/stamp-test ## 10 million records of 1 million keys compacted, in both layouts
	@$(BIN)/python -m benchmarks.bench_compaction

bench-kafka: $(VENV)/stamp-bench ## a real Kafka broker beside this engine (Java 17, Maven, SCALE=small)
	@$(BIN)/python -m benchmarks.kafka --scale $(or $(SCALE),full)

bench-broker: $(VENV)/stamp-broker ## the broker beside a real Kafka, same clients (Java 17, Maven, SCALE=small)
	@$(BIN)/python -m benchmarks.broker --scale $(or $(SCALE),full) --json bench-broker.json

bench-tls: $(VENV)/stamp-test ## what TLS costs the broker: the same client with it and without it
	@PYTHONPATH=src:tests:. $(BIN)/python -m benchmarks.broker.tls

bench-cluster: $(VENV)/stamp-test ## three brokers beside three of a real Kafka, same clients (Java 17, Maven, SCALE=small)
	@PYTHONPATH=src:tests:. $(BIN)/python -m benchmarks.cluster.bench --scale $(or $(SCALE),full) --json bench-cluster.json

bench-spark: $(VENV)/stamp-test ## Spark over a store against a plain source, tuples, and the clock
	@$(BIN)/python -m benchmarks.bench_spark

bench-spark-brokers: $(VENV)/stamp-test ## Spark over a cluster: local replicas, Fetch, Spark's own Kafka source (Maven), a client
	@PYTHONPATH=src:tests:. $(BIN)/python -m benchmarks.bench_spark_brokers

bench-kafka-spark: $(VENV)/stamp-bench-kafka-spark ## Spark over a broker's directory against a Python client of it
	@$(BIN)/python -m benchmarks.bench_kafka_spark

spark-kill: $(VENV)/stamp-test ## a Spark driver killed 20 times in its batches; a commit cut at every call
	@$(SPARK_KILL_RUN) $(PYTEST) -s tests/spark/kill_drivers.py tests/spark/test_commits.py

spark-cluster: $(VENV)/stamp-test ## the Spark source on a standalone master with two workers
	@PYTHONPATH=src $(BIN)/python tests/spark/on_a_cluster.py

spark-brokers: $(VENV)/stamp-test ## Spark over a cluster: local replicas and Fetch, moves, damage, deletions, dead brokers
	@$(PYTEST) -s tests/spark/read_brokers.py tests/spark/read_dying_brokers.py

spark-fuzz: $(VENV)/stamp-test ## 20,000 mutated batches of both layouts through Spark itself
	@LOGSTORE_SPARK_MUTANTS=20000 LOGSTORE_SPARK_READS=8 $(PYTEST) -s tests/spark/test_mutated_batches.py

kill: $(VENV)/stamp-test ## 10,000 times kill -9 of a writing process; an end at every change of the log dirs
	@LOGSTORE_KILLS=10000 LOGSTORE_COMPACTION_KILLS=1000 LOGSTORE_DIR_KILLS_EVERY=1 \
	  LOGSTORE_COORDINATION_KILLS=1000 $(PYTEST) tests/kill -s

media: $(VENV)/stamp-test ## every single bit of a 64 KiB segment flipped
	@$(BIN)/python tests/media/bit_flips.py --every 1

kafka-damage: $(VENV)/stamp-test ## 10,000 flips, cuts and zeros in segments that Kafka wrote
	@PYTHONPATH=src:tests:. $(BIN)/python tests/media/kafka_damage.py

kafka-interop: $(VENV)/stamp-test ## 20 rounds against a real Kafka broker (Java 17, Maven)
	@PYTHONPATH=src:tests:. $(BIN)/python tests/media/kafka_interop.py

kafka-hands: $(VENV)/stamp-test ## log dirs change hands between a real Kafka and the broker, 20 rounds (Java 17, Maven)
	@PYTHONPATH=src:tests:. $(BIN)/python tests/media/kafka_hands.py --rounds $(or $(ROUNDS),20)
	@LOGSTORE_HANDS_KILLS=100 $(PYTEST) --timeout=3600 tests/broker/test_killed_hands.py

consumer-groups: $(VENV)/stamp-test ## groups of KIP-848: 20,000 random histories, 50 kills of the broker, 20 of coordinators
	@LOGSTORE_CONSUMER_GROUP_HISTORIES=20000 LOGSTORE_CONSUMER_GROUP_KILLS=50 \
	  LOGSTORE_CONSUMER_GROUP_CHANGES=500 LOGSTORE_CONSUMER_GROUP_COORDINATOR_KILLS=20 \
	  $(PYTEST) --timeout=7200 tests/broker/test_consumer_group_model.py \
	  tests/broker/test_consumer_group_clients.py tests/broker/migrating_processes.py \
	  tests/cluster/test_new_protocol_groups.py

kafka-parity: $(VENV)/stamp-test ## 280 questions to the broker and to a real Kafka (Java 17, Maven)
	@PYTHONPATH=src:tests:. $(BIN)/python -m support.kafka_parity
	@PYTHONPATH=src:tests:. $(BIN)/python -m support.consumer_group_questions

broker-clients: $(VENV)/stamp-test ## clients in Go and Java, Spark and others against a broker, Kafka's tools also against a cluster (LOGSTORE_CLIENTS=kafka: Kafka)
	@scripts/install-tools.sh clients
	@LOGSTORE_CLIENTS=$${LOGSTORE_CLIENTS:-logstore} $(PYTEST) tests/clients

browser: $(VENV)/stamp-browser ## the broker's page in Chromium, and Produce while the page is attacked
	@scripts/install-tools.sh browser
	@$(PYTEST) tests/page/in_browser.py tests/page/hammered.py -s

fuzz: $(VENV)/stamp-fuzz ## 30 minutes of a coverage-guided fuzzer on the decoder of Kafka's batches
	@PYTHONPATH=src:tests:. $(BIN)/python tests/media/kafka_fuzz.py

fuzz-batches: $(VENV)/stamp-test ## 1,000,000 mutated batches of both layouts through every way in and out
	@PYTHONPATH=src:tests:. $(BIN)/python tests/media/batch_fuzz.py

fuzz-frames: $(VENV)/stamp-test ## 1,000,000 mutated messages of the wire protocol through every decoder
	@LOGSTORE_FUZZ_FRAMES=1000000 $(PYTEST) --timeout=7200 tests/wire/test_wire_fuzz.py -s

kill-broker: $(VENV)/stamp-test ## 1,000 times kill -9 of a broker under producers, then under groups; 200 times under changes of settings
	@LOGSTORE_BROKER_KILLS=1000 $(PYTEST) tests/kill/test_broker_kills.py tests/kill/test_group_kills.py tests/kill/test_alteration_kills.py -s

fuzz-broker: $(VENV)/stamp-test ## 1,000,000 mutated requests on the sockets of a broker
	@LOGSTORE_FUZZ_FRAMES=1000000 $(PYTEST) --timeout=20000 tests/broker/test_broker_fuzz.py -s

secure-broker: $(VENV)/stamp-test $(VENV)/sslyze ## 2,000 idle TLS connections; the TLS set-up graded by sslyze; 200,000 mutated logins
	@LOGSTORE_SSLYZE=$(VENV)/sslyze/bin/python $(PYTEST) -s tests/broker/secure_load.py
	@LOGSTORE_FUZZ_FRAMES=800000 $(PYTEST) --timeout=20000 tests/broker/test_broker_fuzz.py -k logins -s

secure-cluster: $(VENV)/stamp-test ## three brokers with TLS and logins between them, over a real ZooKeeper; brokers die
	@$(PYTEST) tests/cluster/secure_processes.py -s

crash: $(VENV)/stamp-test ## power cuts: 60 histories, 1,000,000 in moves, 3,000 on ext4 and on XFS
	@LOGSTORE_HISTORIES=60 LOGSTORE_MOVE_STATES=1000000 LOGSTORE_COMPACTION_CUTS=40 \
	  LOGSTORE_HISTORY_CUTS=10000 LOGSTORE_REAL_CUTS=3000 LOGSTORE_BROKER_CUTS=1000 \
	  LOGSTORE_COORDINATION_CUTS=20000 $(PYTEST) tests/crash -s

kill-transactions: $(VENV)/stamp-test ## 200 times kill -9 of a broker, or a cluster's broker, under transactions
	@LOGSTORE_TRANSACTION_KILLS=200 $(PYTEST) -s tests/kill/test_transaction_kills.py \
	  tests/cluster/test_cluster_transactions.py

kill-moves: $(VENV)/stamp-test ## a move killed at each of its system calls on files (strace)
	@LOGSTORE_MOVE_KILLS=strace $(PYTEST) tests/kill/test_move_kills.py -s

kill-cluster: $(VENV)/stamp-test ## 100 times kill -9 of brokers of a cluster, over a real ZooKeeper
	@LOGSTORE_CLUSTER_KILLS=100 $(PYTEST) tests/cluster/kill_processes.py -s

jepsen: $(VENV)/stamp-test ## partitions, kills, bad disks and clocks, joins and drains in a cluster: 200 runs of 60 s (root)
	@scripts/install-tools.sh jepsen
	@PYTHONPATH=src:tests $(BIN)/python -m jepsen all

jepsen-transactions: $(VENV)/stamp-test ## the same faults under transactions: 100 runs of 60 s (root)
	@scripts/install-tools.sh jepsen
	@PYTHONPATH=src:tests $(BIN)/python -m jepsen transactions

operate-cluster: $(VENV)/stamp-test ## what OPERATIONS.md tells operators of a cluster to do, while a client produces
	@$(PYTEST) tests/cluster/operate.py -s

cluster-sim: $(VENV)/stamp-test ## 20,000 random histories of the cluster's rules, in a simulated cluster
	@LOGSTORE_CLUSTER_SEEDS=20000 $(PYTEST) -n auto tests/cluster/test_cluster_sim.py

soak: $(VENV)/stamp-test ## 60 s of everything at once over four disks, of which one fills (root)
	@LOGSTORE_SOAK_SECONDS=60 $(PYTEST) tests/integration/test_all_at_once.py -s

soak-moves: $(VENV)/stamp-test ## 1,000 moves under readers, writers, flushes, cuts and retention
	@LOGSTORE_MOVES=1000 $(PYTEST) tests/mover/test_soak.py -s

startup-model: $(VENV)/stamp-test ## all histories to 11 steps, each rule changed, 2,000 fake disks
	@LOGSTORE_HISTORY_DEPTH=11 LOGSTORE_FAKE_DISK_EXAMPLES=2000 $(PYTEST) -s \
	  tests/startup/test_history_model.py tests/startup/test_mutants.py \
	  tests/startup/test_on_fake_disks.py

faults: $(VENV)/stamp-test tools ## one real disk of 4, of 12, fails under load: latencies, a disk that hangs 60 s
	@LOGSTORE_FAULTS=full $(PYTEST) tests/faults -s

interrupts: $(VENV)/stamp-test ## 10,000 times Ctrl-C at random over every operation; mutants of what copes with it
	@LOGSTORE_INTERRUPTS=10000 $(PYTEST) --timeout=7200 tests/stress/test_interrupts.py -s

exhaustion: $(VENV)/stamp-test ## 4,000 programs that run short of descriptors, threads, memory, size of files
	@LOGSTORE_EXHAUSTIONS=4000 $(PYTEST) --timeout=7200 tests/stress/test_exhaustion.py -s

small-files: $(VENV)/stamp-test ## every small file replaced in every way: 4,600 stores, no record deleted
	@LOGSTORE_SMALL_FILES=all $(PYTEST) --timeout=3600 -n auto tests/startup/test_small_files_generated.py -rP

hanging-start: $(VENV)/stamp-test ## a disk hangs at each call of a start, and of a log dir's return
	@LOGSTORE_HANG_EVERY=1 $(PYTEST) tests/startup/test_hanging_start.py tests/startup/test_hanging_return.py -s

io-errors: $(VENV)/stamp-test ## every call to the disk fails, every kind of error, no call left out
	@LOGSTORE_STRIDE=1 $(PYTEST) tests/io_errors -n auto --dist worksteal -rP --log-level ERROR

build: $(VENV)/stamp-build ## source distribution and wheel, in dist/
	@$(BIN)/python -m build --outdir dist .

tools: ## the system's tools that tests need (root on Debian only; else says what is missing)
	@scripts/install-tools.sh

clean: ## remove everything that is made here
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the virtual environment, one stamp a group ---

# ensurepip is called here, not by venv, which would hide what it says when it fails
$(VENV)/stamp-pip: scripts/find-python.sh
	@[ -n "$$(scripts/find-python.sh)" ] || scripts/install-tools.sh
	"$$(scripts/find-python.sh --or-complain)" -m venv --clear --without-pip $(VENV)
	$(BIN)/python -m ensurepip --upgrade --default-pip >/dev/null || \
	  { df -h . $${TMPDIR:-/tmp} >&2; sleep 5; $(BIN)/python -m ensurepip --upgrade --default-pip; }
	$(BIN)/python -m pip install -q --disable-pip-version-check --upgrade 'pip>=25.1'
	@touch $@

# It does not fit beside the libraries of the tests, so it has a place of its own.
$(VENV)/sslyze: $(VENV)/stamp-pip
	$(BIN)/python -m venv $@
	$@/bin/python -m pip install -q --disable-pip-version-check 'sslyze>=6.3,<7'
	@touch $@

$(VENV)/stamp-demo: $(VENV)/stamp-pip pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[cli]' --group demo
	@touch $@

$(VENV)/stamp-broker: $(VENV)/stamp-pip pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[cli,broker]' --group broker
	@touch $@

$(VENV)/stamp-cluster: $(VENV)/stamp-pip pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[cli,cluster]' --group cluster
	@touch $@

$(VENV)/stamp-test $(VENV)/stamp-lint $(VENV)/stamp-bench $(VENV)/stamp-build $(VENV)/stamp-layouts $(VENV)/stamp-fuzz $(VENV)/stamp-browser $(VENV)/stamp-bench-kafka-spark: \
  $(VENV)/stamp-%: $(VENV)/stamp-pip pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[arrow,cli,compression,kafka]' --group $*
	@touch $@
