import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

/** Two consumers of a group in one thread, which polls both in turns. */
final class Groups {
  static final int PARTITIONS = 4;

  private Groups() {}

  /** A consumer of a group, with what it has read and what was taken away from it. */
  static final class Member implements ConsumerRebalanceListener, AutoCloseable {
    final KafkaConsumer<String, String> consumer;
    final List<Integer> read = new ArrayList<>();
    final List<TopicPartition> revoked = new ArrayList<>();
    int assignments;
    boolean mayBeRefused;

    Member(String servers, String topic, String strategy, Object... settings) {
      Object[] all = {
        "group.id", topic, "heartbeat.interval.ms", 200, "session.timeout.ms", 10_000,
        "partition.assignment.strategy", strategy
      };
      List<Object> more = new ArrayList<>(List.of(all));
      more.addAll(List.of(settings));
      consumer = Clients.consumer(servers, more.toArray());
      consumer.subscribe(List.of(topic), this);
    }

    /** A member of the new protocol. */
    Member(String servers, String topic) {
      consumer = Clients.consumer(servers, "group.id", topic, "group.protocol", "consumer");
      consumer.subscribe(List.of(topic), this);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> lost) {
      revoked.addAll(lost);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> added) {
      assignments++;
    }

    void poll() {
      var records = consumer.poll(Duration.ofMillis(20));
      for (ConsumerRecord<String, String> record : records) {
        read.add(Integer.parseInt(record.value()));
      }
      if (records.isEmpty()) return;
      try {
        consumer.commitSync();
      } catch (CommitFailedException | RebalanceInProgressException overtaken) {
        Clients.require(mayBeRefused, "a commit was refused");
      }
    }

    int share() {
      return consumer.assignment().size();
    }

    @Override
    public void close() {
      consumer.close();
    }
  }

  static void until(String what, List<Member> members, Callable<Boolean> holds) throws Exception {
    long deadline = System.nanoTime() + 60_000_000_000L;
    while (!holds.call()) {
      Clients.require(System.nanoTime() < deadline, "waited in vain for " + what);
      for (Member one : members) one.poll();
    }
  }

  static void create(String servers, String topic) throws Exception {
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
      admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
    }
    Clients.fill(servers, topic, PARTITIONS, 0);
  }

  static void tell(List<Integer> read) {
    System.out.println("read " + read.size() + " distinct " + new HashSet<>(read).size());
  }

  /** A second member joins and leaves; each record is read once. */
  static void share(String servers, String assignor) throws Exception {
    String topic = "java-" + assignor;
    String strategy = "org.apache.kafka.clients.consumer." + assignor + "Assignor";
    create(servers, topic);
    List<Integer> read = new ArrayList<>();
    try (Member one = new Member(servers, topic, strategy)) {
      until("all records", List.of(one), () -> one.read.size() == Clients.COUNT);
      try (Member two = new Member(servers, topic, strategy)) {
        until("a share each", List.of(one, two), () -> one.share() == 2 && two.share() == 2);
        System.out.println("the first member gave up " + one.revoked.size());
        Clients.fill(servers, topic, PARTITIONS, Clients.COUNT);
        until(
            "the further records", List.of(one, two),
            () -> one.read.size() + two.read.size() >= 2 * Clients.COUNT);
        read.addAll(two.read);
      }
      until("all partitions", List.of(one), () -> one.share() == PARTITIONS);
      read.addAll(one.read);
      tell(read);
    }
  }

  /** A static member that restarts gets its share again, and the other one hears nothing. */
  static void restart(String servers) throws Exception {
    String range = "org.apache.kafka.clients.consumer.RangeAssignor";
    create(servers, "java-static");
    try (Member one = new Member(servers, "java-static", range, "group.instance.id", "one")) {
      Collection<TopicPartition> share;
      List<Integer> read = new ArrayList<>();
      try (Member two = new Member(servers, "java-static", range, "group.instance.id", "two")) {
        until("a share each", List.of(one, two), () -> one.share() == 2 && two.share() == 2);
        until("all", List.of(one, two), () -> one.read.size() + two.read.size() >= Clients.COUNT);
        share = two.consumer.assignment();
        read.addAll(two.read);
      }
      int before = one.assignments;
      try (Member two = new Member(servers, "java-static", range, "group.instance.id", "two")) {
        until("its share again", List.of(one, two), () -> two.share() == 2);
        System.out.println("the same share " + two.consumer.assignment().equals(share));
        System.out.println("rebalances of the other member " + (one.assignments - before));
        System.out.println("state " + Administration.stateOf(servers, "java-static"));
      }
    }
  }

  static int distinct(List<Integer> read, List<Member> members) {
    var all = new HashSet<>(read);
    for (Member one : members) all.addAll(one.read);
    return all.size();
  }

  /** Members change to the new protocol one after another, and back, while records arrive. */
  static void migrate(String servers, String assignor) throws Exception {
    String topic = "java-migrate-" + assignor;
    String strategy = "org.apache.kafka.clients.consumer." + assignor + "Assignor";
    create(servers, topic);
    List<Integer> read = new ArrayList<>();
    List<Member> members = new ArrayList<>();
    for (int number = 0; number < 2; number++) members.add(new Member(servers, topic, strategy));
    for (Member one : members) one.mayBeRefused = true; // a rebalance may overtake a member
    int[] count = {Clients.COUNT};
    for (boolean isNew : new boolean[] {true, false}) {
      for (int number = 0; number < 2; number++) {
        until("the records", members, () -> distinct(read, members) == count[0]);
        Clients.fill(servers, topic, PARTITIONS, count[0]);
        count[0] += Clients.COUNT;
        members.get(number).close();
        read.addAll(members.get(number).read);
        members.set(
            number, isNew ? new Member(servers, topic) : new Member(servers, topic, strategy));
        members.get(number).mayBeRefused = true;
        until("a share each", members, () -> members.stream().allMatch(one -> one.share() == 2));
      }
      until("the records", members, () -> distinct(read, members) == count[0]);
      try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
        var found = admin.describeConsumerGroups(List.of(topic)).all().get().get(topic);
        System.out.println("type " + found.type() + " members " + found.members().size());
      }
    }
    for (Member one : members) one.close();
    System.out.println("distinct " + distinct(read, members));
  }

  /** Continue from the commits, after a restart of the broker. */
  static void resume(String servers) throws Exception {
    String topic = "java-CooperativeSticky";
    String strategy = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
    Clients.fill(servers, topic, PARTITIONS, 2 * Clients.COUNT);
    try (Member one = new Member(servers, topic, strategy)) {
      until("the new records", List.of(one), () -> one.read.size() >= Clients.COUNT);
      tell(one.read);
      System.out.println("from " + Clients.sorted(one.read).get(0));
    }
  }
}
