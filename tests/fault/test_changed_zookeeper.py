"""ZooKeeper changes under a plan that is at work, and under processes that start: real servers, a plan's own course, and
proxies that follow by a view. No topic moves by what is wrong, and the plan goes on once the change is taken back.
"""

import shutil
import time
from contextlib import closing, suppress

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from common.admin import store_users, topics, transfer, upkeep
from common.admin.administrator import Administrator
from common.admin.topics import TopicSettings
from common.clock import SystemClock
from common.config.buckets import bucket_of
from common.config.errors import ConfigError, StoreDamaged, StoreUnavailable
from common.config.view import ConfigView
from common.config.zookeeper_options import ZooKeeperOptions
from common.config.zookeeper_store import ZooKeeperStore
from migration.errors import PlanRefused
from migration.recipes.course import PlanStep
from tests.fault.followed_plan import ZooKeeperWorld
from tests.services.zookeeper import RECONNECT_S, Ensemble, ZooKeeper
from tests.unit.migration.test_courses import assert_sides_agree, go
from tests.waiting import until

FENCED = "cut: quiet"
"""What a course tells when all topics are fenced, and nothing is sent any more."""
MOMENTS = {"start: copy_in": (), FENCED: ("start", "verify"), "rollback: quiet": ("start", "verify", "cut", "soak")}
HOUR_MS = 3_600_000
OTHER = "other:user"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    with Ensemble(tmp_path_factory.mktemp("ensemble")) as running:
        yield running


@pytest.fixture
def open_world(tmp_path):
    """Make the world of a plan on a server, with a user of its own."""
    made = []

    def open_it(address, moment):
        auth = tmp_path / "auth"
        auth.touch(0o600)
        auth.write_text("penstock:first")
        options = ZooKeeperOptions(
            address, f"/{tmp_path.name}", str(auth), session_timeout_s=2.0, connect_timeout_s=2.0
        )
        with closing(ZooKeeperStore(options)) as first:
            topics.create(Administrator(first, "test"), ["before"], TopicSettings())
        made.append(ZooKeeperWorld(options))
        made[0].add_plan()
        go(made[0], *MOMENTS[moment])
        return made[0]

    yield open_it
    for each in made:
        each.close()


def moments(*others):
    """The moment behind the fence in each run, the others in slow ones."""
    return pytest.mark.parametrize("moment", [FENCED, *(pytest.param(each, marks=pytest.mark.slow) for each in others)])


ALL = moments(*(each for each in MOMENTS if each != FENCED))


def struck(world, moment, strike):
    """Run the command of this moment, of which the change is made in the middle; returns the error that ends it, if any."""
    world.progress.at, world.progress.strike = moment, strike
    try:
        go(world, moment.partition(":")[0])
    except (ConfigError, PlanRefused) as error:
        return error
    finally:
        assert not world.progress.at, world.progress
    return None


def again(world, command):
    """Run it, and once more where a fence of before the change has ended meanwhile, or has to be lifted still."""
    try:
        go(world, command)
    except PlanRefused as refusal:
        assert "begin again" in str(refusal) or "use resume" in str(refusal)
        if "use resume" in str(refusal):
            with suppress(PlanRefused):  # it lifts the fence, and tells once more why the course was given up
                world.run().resume()
        go(world, command)


def goes_on(world, moment):
    """The change is taken back: the command succeeds, and nothing is on the side that was left."""
    until(lambda: not any(each.view.damage or each.view.age_s for each in world.proxies), "contact", RECONNECT_S)
    world.wait_unfenced()
    homes = {world.home(name) for name in world.plan.topic_names} - {""}
    assert homes <= {"engine" if moment.startswith("rollback") else "kafka:main"}, "nothing has moved"
    again(world, moment.partition(":")[0])
    assert not world.state.reason
    for _ in range(10):
        world.turn()
    assert_sides_agree(world)


@ALL
def test_a_minority_moves_no_step_and_the_plan_goes_on_with_the_majority(ensemble, open_world, moment):
    world = open_world(ensemble.address, moment)
    try:
        error = struck(world, moment, ensemble.become_minority)
        assert isinstance(error, StoreUnavailable), error
    finally:
        ensemble.become_majority()
    goes_on(world, moment)


def test_a_process_starts_on_its_snapshot_while_only_a_minority_is_there_and_not_at_all_without_one(ensemble, tmp_path):
    options = ZooKeeperOptions(ensemble.address, "/start", session_timeout_s=2.0, connect_timeout_s=2.0)
    with closing(ZooKeeperStore(options)) as store:
        admin = Administrator(store, "test")
        topics.create(admin, ["orders"], TopicSettings())
        ConfigView(store, tmp_path / "snapshot").close()
        ensemble.become_minority()
        try:
            with (
                closing(ZooKeeperStore(options)) as late,
                pytest.raises(StoreUnavailable, match="there is no snapshot"),
            ):
                ConfigView(late)
            with closing(ZooKeeperStore(options)) as late:
                view = ConfigView(late, tmp_path / "snapshot")
                assert view.topic("orders") and view.age_s
                ensemble.become_majority()
                until(lambda: not view.age_s, "contact", RECONNECT_S)
                until(lambda: store.unavailable_since_ms is None, "contact", RECONNECT_S)
                topics.create(admin, ["bills"], TopicSettings())
                until(lambda: view.topic("bills"), "the change")
                view.close()
        finally:
            ensemble.become_majority()


def apply_again(world, saved):
    """What an operator does about a store that was lost: the export, and the plan, which is not in it."""
    transfer.apply(world.admin, saved, transfer.differences(world.store, saved, deletes=False))
    upkeep.accept(world.admin, saved["identity"]["cluster"])
    if world.store.get("migration", "shop") is None:
        world.add_plan()


def reached(store) -> bool:
    with suppress(StoreUnavailable):
        store.identity()
        return True
    return False


def exported(world):
    return transfer.export(world.store, SystemClock())


def restart_on(server, folder=None):
    """The server comes back with what is in the folder, or with nothing; returns where its own data are kept."""
    server.stop()
    kept = server.data.with_name("kept")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.move(server.data, kept)
    if folder is not None:
        shutil.copytree(folder, server.data)
    server.start()
    return kept


@ALL
def test_an_emptied_one_gets_nothing_from_the_plan_and_the_plan_is_made_again(server, open_world, moment):
    world = open_world(server.address, moment)
    saved = []
    error = struck(world, moment, lambda: (saved.append(exported(world)), restart_on(server)))
    assert isinstance(error, StoreUnavailable | PlanRefused), error
    until(lambda: all(each.view.damage for each in world.proxies), "the views to notice", RECONNECT_S)
    until(lambda: reached(world.store), "contact", RECONNECT_S)
    for kind in ("topic", "migration", "migration_topic", "copy_in", "copy_out"):
        assert world.store.names(kind) == [], "nothing of the plan was written there"
    with pytest.raises(ConfigError, match="not found"):
        world.run()
    apply_again(world, saved[0])
    until(lambda: not any(each.view.damage for each in world.proxies), "the views to follow it", RECONNECT_S)
    world.wait_unfenced()
    assert world.state.step is (PlanStep.CUT if moment.startswith("rollback") else PlanStep.PLANNED)
    for command in ("soak", "rollback") if moment.startswith("rollback") else ("start", "verify", "cut"):
        again(world, command)
    assert_sides_agree(world)


@ALL
def test_an_older_copy_is_not_followed_by_the_plan_nor_by_proxies(server, open_world, tmp_path, moment):
    world = open_world(server.address, moment)
    server.stop()
    shutil.copytree(server.data, tmp_path / "copy")
    server.start()
    until(lambda: all(not each.view.age_s for each in world.proxies), "contact", RECONNECT_S)
    until(lambda: reached(world.store), "contact", RECONNECT_S)
    world.store.put("topic", "later", {"queues": 1}, 0)
    kept = []
    error = struck(world, moment, lambda: kept.append(restart_on(server, tmp_path / "copy")))
    assert isinstance(error, StoreUnavailable | PlanRefused), error
    until(lambda: all(each.view.damage for each in world.proxies), "the views to notice", RECONNECT_S)
    shutil.copytree(kept[0], tmp_path / "newest")
    restart_on(server, tmp_path / "newest")
    goes_on(world, moment)


NODES = {"the index of topics": "topic/index", "a bucket of topics": "topic/*", "the index of plans": "migration/index",
         "a bucket of plans": "migration/*", "all topics": "topic"}  # fmt: skip


def delete_nodes(world, node):
    client, path = world.store._client, world.store._path
    kind, _, which = node.partition("/")
    if which:
        names = [which] if which != "*" else [each for each in client.get_children(path(kind)) if each.isdigit()]
        for name in names:
            client.delete(path(kind, name))
    else:
        client.delete(path(kind), recursive=True)


@pytest.mark.parametrize("node", NODES)
def test_deleted_nodes_end_the_course_with_a_sentence_and_are_made_again(server, open_world, node):
    world = open_world(server.address, FENCED)
    saved = []
    error = struck(world, FENCED, lambda: (saved.append(exported(world)), delete_nodes(world, NODES[node])))
    assert isinstance(error, StoreDamaged | PlanRefused) and "missing" in str(error), error
    upkeep.repair(world.admin)
    apply_again(world, saved[0])
    until(lambda: not any(each.view.damage for each in world.proxies), "the views to follow it", RECONNECT_S)
    if world.state.step is PlanStep.PLANNED:  # its entry was lost
        go(world, "start", "verify")
    goes_on(world, FENCED)


@pytest.mark.parametrize("with_index", [False, True], ids=["bucket alone", "index, too"])
def test_a_deleted_bucket_is_told_at_each_read_and_change_and_left_out_of_its_index(server, tmp_path, with_index):
    options = ZooKeeperOptions(server.address, f"/{tmp_path.name}", session_timeout_s=2.0)
    with closing(ZooKeeperStore(options)) as store, closing(ZooKeeperStore(options)) as late:
        admin, wanted = Administrator(store, "test"), [f"t{number}" for number in range(50)]
        topics.create(admin, wanted, TopicSettings())
        view = ConfigView(store, tmp_path / "snapshot", process="proxy")
        saved = transfer.export(store, SystemClock())
        number = bucket_of("t7", len(store.index("topic")))
        store._client.delete(store._path("topic", f"{number:03d}"))
        if with_index:
            store._client.delete(store._path("topic", "index"))
        began = time.monotonic()
        found = saved["kinds"]["topic"]["t7"]
        for call in (lambda: late.names("topic"), lambda: store.put("topic", "t7", found, 1)):
            with pytest.raises(StoreDamaged, match=r"missing.*penstock config repair"):
                call()
        with pytest.raises(StoreUnavailable, match=r"missing.*there is no snapshot"):
            ConfigView(late)
        assert time.monotonic() - began < 5
        assert [each for each in upkeep.verify(store) if "missing" in each.problem]
        upkeep.repair(admin)
        until(lambda: view.damage, "the process to see that the store has less")
        assert all(map(view.topic, wanted)), "the last state is in force"
        transfer.apply(admin, saved, transfer.differences(store, saved, deletes=False))
        until(lambda: view.damage is None, "the restored store")
        assert sorted(store.names("topic")) == sorted(wanted) and upkeep.verify(store) == []
        view.close()


@ALL
def test_a_password_that_turns_and_a_clock_that_jumps_are_followed(server, open_world, tmp_path, moment):
    world = open_world(server.address, moment)

    def turn_password():
        admin = world.admin
        store_users.set_users(admin, writers=["penstock:first", "penstock:new"])
        (tmp_path / "auth").write_text("penstock:new")
        with closing(ZooKeeperStore(world.options)) as last:
            store_users.set_users(Administrator(last, "test"), writers=["penstock:new"])
        world.clock.step(HOUR_MS)

    assert struck(world, moment, turn_password) is None
    assert not any(each.view.damage for each in world.proxies)
    world.clock.step(-2 * HOUR_MS)
    assert_sides_agree(world)
    assert upkeep.verify(world.store) == []


@ALL
def test_an_access_list_that_is_taken_ends_the_course_and_when_it_is_given_back_the_plan_goes_on(
    server, open_world, moment, caplog
):
    world = open_world(server.address, moment)
    hand = KazooClient(server.address, auth_data=[("digest", "penstock:first"), ("digest", OTHER)])
    hand.start()
    others = [make_digest_acl(*OTHER.split(":"), all=True)]

    def nodes(path):
        yield path
        for name in hand.get_children(path):
            yield from nodes(f"{path}/{name}")

    kept = {}

    def take():
        for path in [*nodes(world.options.chroot)]:
            kept[path] = hand.get_acls(path)[0]
            hand.set_acls(path, others)

    error = struck(world, moment, take)
    assert isinstance(error, StoreUnavailable) and "check auth_file" in str(error), error
    for _ in range(120):
        world.turn()
    for path, acls in kept.items():
        hand.set_acls(path, acls)
    hand.stop()
    hand.close()
    goes_on(world, moment)
