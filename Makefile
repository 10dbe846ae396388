# `make run` and `make test` do all set-up by themselves; the second time they start at once.
# Stamp files record finished steps: installed packages in the virtual environment, checked system packages in build/.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
NATIVE := common engine producer_proxy consumer_proxy kafka_bridge migration pipeline bench
SOURCES := $(shell find $(NATIVE) -name '*.p[yx][xdi]' -o -name '*.h')
# Of a reference that is compiled itself, x.py, the declarations are in _x.pxd.
SOURCES += $(wildcard $(shell find $(NATIVE) -name '_*.pxd' | sed 's|/_\([^/]*\)\.pxd$$|/\1.py|'))
ARGS ?=

.PHONY: help run test lint native clients bench bench-alone bench-replicas peers peers-replicated lock wheel without-compiler fuzz sanitize simulate simulate-group mutants machines deb fresh powercut flips partitions nemesis flow floods outage bufferfaults switchover reconcile moves kafkafaults copykills sparkfaults sparkcluster bench-spark reconcileids outside rehearsals bench-kafka bench-cut slow clean
help:
	@sed -n 's/^## //p' Makefile

## make run               start everything on this machine, with a demo: a real file through the whole path (ARGS="--data DIR …")
run: $(VENV)/.linked
	@exec scripts/run-demo $(ARGS)

## make test              run all tests but the slow ones, those that compute beside those of processes (ARGS="tests/unit -k name")
test: $(VENV)/.installed-dev clients
	@$(BIN)/python scripts/run-tests $(ARGS)

## make lint              check format, lint and types
lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy common engine kafka_bridge migration producer_proxy consumer_proxy controller console pipeline penstock bench

## make native            rebuild the native modules in place
native: $(VENV)/.dev-packages
	$(BIN)/python setup.py --quiet build_ext --inplace

## make clients           build contract code and programs of the clients whose tool chains are present
clients:
	@scripts/build-clients

## make bench             run the named workloads, each against a Penstock of its own (ARGS="single_fsync …")
bench: $(VENV)/.installed
	$(BIN)/python -m bench $(ARGS)

## make peers             run the same calls against Kafka, RocketMQ and NATS JetStream (needs a JDK, Maven and Go; 40 minutes)
peers: $(VENV)/.installed
	$(BIN)/python -m bench.peers $(ARGS)

## make peers-replicated  switch-over and replicated calls beside RocketMQ's controller mode, Kafka and NATS with 2 and 3 nodes (45 minutes; ARGS="--times 3 --only kafka,penstock")
peers-replicated: $(VENV)/.installed
	$(BIN)/python -m bench.peers.replicated --out build/peers-replicated.json $(ARGS)

## make bench-alone       measure the engine alone: million topics, flatness, restarts with 10 GiB, cold readers, the disk (ARGS="million fsync"; 20 minutes, 12 GiB in TMPDIR)
bench-alone: $(VENV)/.installed
	$(BIN)/python -m bench.alone $(or $(ARGS),million flat restart cold fsync)

## make bench-replicas    measure a broker group with replicas: calls and CPU beside a lone engine, latency, start, catch-up (ARGS="calls --seconds 20"; 5 minutes, 20 GiB in TMPDIR)
bench-replicas: $(VENV)/.installed
	$(BIN)/python -m bench.replicas $(or $(ARGS),calls paced ready catch_up behind)

## make bench-kafka       measure dual writes, mirrors, Kafka homes, a fence and an inventory beside one broker (ARGS="dual --seconds 10"; 25 minutes; needs a JDK and Maven)
bench-kafka: $(VENV)/.installed
	$(BIN)/python -m bench.kafka $(or $(ARGS),dual mirror home pull fence inventory)

## make bench-cut         draw a cut under load: rates of senders and Kafka, errors, steps (ARGS="--rate 100 --out docs/runs"; 2 minutes)
bench-cut: $(VENV)/.installed
	$(BIN)/python -m bench.kafka.cut $(or $(ARGS),--out docs/runs)

## make fuzz              run mutated frames through both walkers (ARGS="--runs 100000 --seed 1")
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m tests.fuzz.fuzz_walk $(or $(ARGS),--runs 100000 --seed $(shell date +%s))

## make simulate          run whole engine nodes in virtual time under faults at every call, one run per seed (SEEDS=0:2000 ARGS="--shrink --minutes 10")
simulate: $(VENV)/.installed-dev
	$(BIN)/python -m tests.sim --seeds $(or $(SEEDS),0:2000) $(ARGS)

## make simulate-group    run broker groups of two and three nodes, controllers and clients in virtual time under faults (SEEDS=0:2000 ARGS="--shrink --minutes 10")
simulate-group: $(VENV)/.installed-dev
	$(BIN)/python -m tests.sim.group --seeds $(or $(SEEDS),0:2000) $(ARGS)

## make mutants           put seeded bugs into the code, one at a time; the simulators have to notice each (ARGS="--suite group 'output is not held'")
mutants: $(VENV)/.installed-dev
	$(BIN)/python -m tests.sim.mutants $(ARGS)

## make machines          run the state machines of delivery and timers for an hour each (LIVES=50000)
machines: $(VENV)/.installed-dev
	PENSTOCK_LIVES=$(or $(LIVES),50000) $(BIN)/python -m pytest tests/unit/engine/delivery/test_delivery_model.py tests/unit/engine/timers/test_model.py $(ARGS)

## make sanitize          run unit tests, contract tests and the fuzzer on native modules built with AddressSanitizer and UBSan (30 minutes; ARGS="tests/unit/engine/log")
sanitize: $(VENV)/.installed-dev
	scripts/sanitize $(BIN)/python $(ARGS)

## make powercut          cut the power under the log, and a quarter as often under each fallback buffer, on ext4 and xfs; as root (CUTS=1000)
powercut: $(VENV)/.installed-dev
	PENSTOCK_CUTS=$(or $(CUTS),1000) $(BIN)/python -m pytest -s tests/fault/test_power_cut.py $(ARGS)

## make partitions        cut the links of a group with replicas under load, each on its own host; as root (TIMES=20; STALE_S=60)
partitions: $(VENV)/.installed-dev
	PENSTOCK_CUTS_EACH=$(or $(TIMES),20) PENSTOCK_STALE_S=$(or $(STALE_S),60) $(BIN)/python -m pytest -s tests/fault/test_partitions.py $(ARGS)

## make outage            stop the engine under a topic with a fallback buffer, and compare what is in the log (SECONDS=600 BUFFER=disk ARGS="--out run.json")
outage: $(VENV)/.installed-dev
	$(BIN)/python -m bench.fallback --seconds $(or $(SECONDS),600) --buffer $(or $(BUFFER),disk) $(ARGS)

## make reconcile         compare 10 million messages in a real Kafka and engine, with one missing, one doubled and one altered (MESSAGES=10000000; 5 GiB in TMPDIR)
reconcile: $(VENV)/.installed-dev
	$(BIN)/python -m tests.reconcile --messages $(or $(MESSAGES),10000000) $(ARGS)

## make flips             flip one bit at a time in every kind of file of a data directory, and on one of two logs (FLIPS=5000 GROUP_FLIPS=1000)
flips: $(VENV)/.installed-dev
	PENSTOCK_FLIPS=$(or $(FLIPS),5000) PENSTOCK_GROUP_FLIPS=$(or $(GROUP_FLIPS),1000) $(BIN)/python -m pytest -s tests/fault/test_flipped_bits.py tests/fault/test_flips_in_a_group.py $(ARGS)

## make bufferfaults      test the fallback buffer under every fault, also the slow ones: fail-overs, 50 kills each while it buffers and drains (KILLS=50)
bufferfaults: $(VENV)/.installed-dev
	PENSTOCK_BUFFER_KILLS=$(or $(KILLS),50) $(BIN)/python -m pytest -s tests/fault/test_buffer.py tests/fault/test_buffer_faults.py tests/fault/test_redis_store.py tests/fault/test_redis_failover.py $(ARGS)

## make switchover        kill the master of a group with replicas, then switch it, so often each under load; then let engines of six layouts end, and machines of the documented one die (KILLS=200, DEATHS=24; an hour)
switchover: $(VENV)/.installed-dev
	PENSTOCK_SWITCHES=$(or $(KILLS),200) PENSTOCK_OUTAGE_S=60 PENSTOCK_LAYOUTS=1x1,1x2,1x3,2x1,2x2,2x3 PENSTOCK_MACHINE_DEATHS=$(or $(DEATHS),24) $(BIN)/python -m pytest -s tests/fault/test_switch_over.py tests/fault/test_order_over_switches.py tests/fault/test_lost_coordination.py tests/fault/test_groups_of_replicas.py tests/fault/test_machine_deaths.py $(ARGS)

## make moves             kill every process while topics move from Kafka, and stop Kafka under a dual write (KILLS=36 for each recipe, OUTAGES=50; an hour)
moves: $(VENV)/.installed-dev
	PENSTOCK_KILLS=$(or $(KILLS),36) PENSTOCK_OUTAGES=$(or $(OUTAGES),50) $(BIN)/python -m pytest -s tests/fault/kafka/test_kills.py tests/fault/kafka/test_outages.py $(ARGS)

## make kafkafaults      fill Kafka's disk under dual writes, revoke its credentials while both drivers run, and walk the table of outside changes; as root (10 minutes)
kafkafaults: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -s tests/fault/kafka/test_full_disk.py tests/fault/kafka/test_revoked_login.py tests/fault/kafka/test_rotated_password.py tests/fault/kafka/test_every_state.py tests/fault/kafka/test_permissions.py tests/fault/kafka/test_brokers_beneath_copies.py $(ARGS)

## make copykills         kill a streaming copy by Spark at random moments (KILLS=20)
copykills: $(VENV)/.installed-dev
	PENSTOCK_COPY_KILLS=$(or $(KILLS),20) $(BIN)/python -m pytest -s tests/e2e/pipeline/test_killed_copy.py $(ARGS)

## make sparkfaults       run the slow tests of the pipeline: faults, switched masters, kills in commits, comparisons, examples, the page's programs (12 minutes)
sparkfaults: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow tests/e2e/pipeline --ignore tests/e2e/pipeline/test_killed_copy.py --ignore tests/e2e/pipeline/test_cluster.py --ignore tests/e2e/pipeline/test_flink.py $(ARGS)

## make sparkcluster       run a copy and an archive by Spark on a Standalone cluster of two workers, and the example in Flink (2 minutes)
sparkcluster: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/e2e/pipeline/test_cluster.py tests/e2e/pipeline/test_flink.py $(ARGS)

## make bench-spark        rates of Spark's source and sink beside those for Kafka, then live sends beside an archive run (MESSAGES=1000000; 10 minutes)
bench-spark: $(VENV)/.installed-dev
	$(BIN)/python -m bench.spark --messages $(or $(MESSAGES),1000000) $(ARGS)
	$(BIN)/python -m bench.spark.beside

## make reconcileids      compare ten million ids by Spark with one missing, one doubled and one altered (MESSAGES=10000000; a minute)
reconcileids: $(VENV)/.installed-dev
	$(BIN)/python -m bench.spark.reconcile --messages $(or $(MESSAGES),10000000) $(ARGS)

## make rehearsals        rehearse a plan of each recipe with a real Kafka and a kill in every later command (8 minutes)
rehearsals: $(VENV)/.installed-dev
	PENSTOCK_REHEARSALS=1 $(BIN)/python -m pytest -s tests/e2e/kafka/test_rehearse.py $(ARGS)

## make slow              run the slow tests of clients, console and limits (20 minutes)
slow: $(VENV)/.installed-dev clients
	$(BIN)/python -m pytest -m slow tests/e2e tests/unit $(ARGS)

## make nemesis           strike a running group with replicas with every kind of fault, under load; as root (MINUTES=30 REPLICAS=2 SEED=…)
nemesis: $(VENV)/.installed-dev
	unshare --mount --propagation private $(BIN)/python -m tests.fault.nemesis --minutes $(or $(MINUTES),30) --replicas $(or $(REPLICAS),2) --seed $(or $(SEED),$(shell date +%s)) $(ARGS)

## make outside           run the slow tests of what changes outside: plans over ZooKeeper, later records, disks of brokers (6 minutes)
outside: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow tests/fault/test_changed_zookeeper.py tests/fault/test_denied_coordination.py \
	  tests/fault/test_changes_of_replicas.py $(ARGS)

## make flow              run large pulls of 350 consumers, then a crowd of slow readers, idle connections and strangers beside a live flow (SECONDS=600 CONSUMERS=350)
flow: $(VENV)/.installed-dev
	PENSTOCK_FLOW_SECONDS=$(or $(SECONDS),600) PENSTOCK_FLOW_CONSUMERS=$(or $(CONSUMERS),350) $(BIN)/python -m pytest -s tests/fault/test_flow_control.py $(ARGS)

## make floods            flood every port beside honest clients: strangers over TLS, wrong ids, mutated frames, slow readers (STRANGERS=10000 IDS=1000000 FRAMES=300000; an hour)
floods: $(VENV)/.installed-dev
	PENSTOCK_FLOOD_WINDOW_S=10 PENSTOCK_FLOOD_AFTER_S=30 PENSTOCK_FLOOD_STRANGERS=$(or $(STRANGERS),10000) PENSTOCK_FLOOD_IDS=$(or $(IDS),1000000) PENSTOCK_FLOOD_FRAMES=$(or $(FRAMES),300000) $(BIN)/python -m pytest -s -m "slow or not slow" tests/fault/floods $(ARGS)

## make without-compiler  install a copy of this tree with CC=/bin/false and send a message through it
without-compiler: $(VENV)/.installed-dev
	scripts/check-without-compiler

## make wheel             build two wheels in dist/: with native modules for this machine's glibc or a later one, and pure
wheel: $(VENV)/.installed
	@scripts/make-wheels dist

## make deb               build a Debian package in dist/ from the wheel, with all it needs from PyPI
deb: wheel
	@scripts/make-deb dist

## make fresh             try a fresh Debian 12, with and without a compiler, and the Debian package in it; as root (needs debootstrap; 15 minutes; ARGS="user")
fresh: deb
	@scripts/fresh-debian $(ARGS)

## make lock              resolve requirements/*.in to versions and hashes
lock: $(VENV)/.dev-packages
	scripts/lock-requirements

## make clean             remove all build output; data and the virtual environment stay
clean:
	rm -rf build dist *.egg-info
	find $(NATIVE) \( -name '*.so' -o -name '_*.c' \) -delete
	rm -f $(VENV)/.installed

# Not bin/python: pip is installed last, so an interrupted environment is made again.
$(VENV)/bin/pip:
	@scripts/system-packages run
	@scripts/step "Creating $(VENV)" scripts/make-venv $(VENV)

# Without compiling: it is a third of the time, and each module that is used is compiled when it is first imported.
$(VENV)/.core-packages: requirements/core.txt requirements/build.txt | $(VENV)/bin/pip
	@scripts/step "Installing Python packages" $(PIP) install --no-compile --require-hashes -r requirements/build.txt -r requirements/core.txt
	@touch $@

# The environment uses this tree, on the Python references as long as there are no native modules.
$(VENV)/.linked: $(VENV)/.core-packages setup.py setup.cfg pyproject.toml
	@PENSTOCK_PURE=1 scripts/step "Installing Penstock" $(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# .installed-dev depends on .dev-packages first: `make test` installs compilers before the one build, so it is native.
# One at a time: `make run` builds beside the demo.
$(VENV)/.installed: $(SOURCES) setup.py | $(VENV)/.linked
	@mkdir -p build
	@scripts/step "Building the native modules" flock build/.native-lock $(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

build/.test-packages: packages.debian.txt
	@scripts/system-packages test
	@mkdir -p build && touch $@

$(VENV)/.dev-packages: requirements/dev.txt build/.test-packages | $(VENV)/.core-packages
	@scripts/step "Installing Python packages of the tests" $(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

# Large, and mostly a download: it runs beside the build. `make run` does without it.
$(VENV)/.spark-packages: requirements/spark.txt | $(VENV)/.linked
	@echo "Installing PySpark"
	@$(PIP) install --require-hashes -r requirements/spark.txt
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.dev-packages $(SOURCES) setup.py requirements/spark.txt
	@$(MAKE) --no-print-directory -j2 $(VENV)/.installed $(VENV)/.spark-packages
	@touch $@
