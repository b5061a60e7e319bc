import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** The calls of Kafka's admin client, mistakes included. */
final class Administration {
  static final String TOPIC = "java-admin";
  static final ConfigResource RESOURCE = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);

  private Administration() {}

  interface Step {
    void run() throws Exception;
  }

  /** Give the class of a step's error, or "ok". */
  static String nameOf(Step step) {
    try {
      step.run();
      return "ok";
    } catch (ExecutionException error) {
      return error.getCause().getClass().getSimpleName();
    } catch (Exception error) {
      return error.getClass().getSimpleName();
    }
  }

  static void say(Object... words) {
    List<String> all = new ArrayList<>();
    for (Object word : words) all.add(String.valueOf(word));
    System.out.println(String.join(" ", all));
  }

  static Object stateOf(String servers, String group) throws Exception {
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
      var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
      return described.state() + " " + described.partitionAssignor() + " "
          + described.members().size();
    }
  }

  /** Ask until an answer is as it should be: Kafka's brokers hear of changes a moment later. */
  static <T> T until(T wanted, Callable<T> question) throws Exception {
    T found = question.call();
    for (int round = 0; !wanted.equals(found) && round < 300; round++) {
      Thread.sleep(100);
      found = question.call();
    }
    return found;
  }

  static void run(String servers) throws Exception {
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
      topics(admin);
      settings(admin);
      records(admin, servers);
      groups(admin, servers);
      say("delete", nameOf(() -> admin.deleteTopics(List.of(TOPIC)).all().get()));
      say("delete unknown", nameOf(() -> admin.deleteTopics(List.of("java-no")).all().get()));
    }
  }

  static void topics(Admin admin) throws Exception {
    var cluster = admin.describeCluster();
    say("nodes", cluster.nodes().get().size(), cluster.controller().get() != null);
    NewTopic topic = new NewTopic(TOPIC, 3, (short) 1).configs(Map.of("retention.ms", "900000000000"));
    say("create", nameOf(() -> admin.createTopics(List.of(topic)).all().get()));
    say("again", nameOf(() -> admin.createTopics(List.of(topic)).all().get()));
    NewTopic wide = new NewTopic("java-wide", 1, (short) 3);
    say("3 replicas", nameOf(() -> admin.createTopics(List.of(wide)).all().get()));
    Map<String, NewPartitions> growth = Map.of(TOPIC, NewPartitions.increaseTo(5));
    say("grow", nameOf(() -> admin.createPartitions(growth).all().get()));
    Map<String, NewPartitions> shrink = Map.of(TOPIC, NewPartitions.increaseTo(2));
    say("shrink", nameOf(() -> admin.createPartitions(shrink).all().get()));
    say("partitions", until(5, () -> partitions(admin, TOPIC)));
    say("describe unknown", nameOf(() -> partitions(admin, "java-no")));
    say("listed", admin.listTopics().names().get().contains(TOPIC));
  }

  static int partitions(Admin admin, String topic) throws Exception {
    return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
  }

  static Collection<AlterConfigOp> set(String name, String value) {
    return List.of(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET));
  }

  static void settings(Admin admin) throws Exception {
    for (String[] one :
        new String[][] {{"cleanup.policy", "compact"}, {"cleanup.polic", "x"}, {"retention.ms", "x"}}) {
      var change = Map.of(RESOURCE, set(one[0], one[1]));
      say("alter", one[0], nameOf(() -> admin.incrementalAlterConfigs(change).all().get()));
    }
    say("policy", until("compact", () -> setting(admin, "cleanup.policy").value()));
    for (String name : List.of("retention.ms", "segment.bytes", "max.message.bytes")) {
      ConfigEntry entry = setting(admin, name);
      say(name, entry.value(), entry.source(), entry.isReadOnly(), entry.isSensitive());
    }
  }

  static ConfigEntry setting(Admin admin, String name) throws Exception {
    return admin.describeConfigs(List.of(RESOURCE)).all().get().get(RESOURCE).get(name);
  }

  static void records(Admin admin, String servers) throws Exception {
    TopicPartition one = new TopicPartition(TOPIC, 1);
    try (var producer = Clients.producer(servers)) {
      for (int number = 0; number < 30; number++) {
        producer.send(new ProducerRecord<>(TOPIC, 1, Clients.TIME + number, "k" + number, "x"));
      }
      producer.flush(); // a batch is refused as a whole
      say("without a key", nameOf(
          () -> producer.send(new ProducerRecord<String, String>(TOPIC, 1, null, "x")).get()));
    }
    var change = Map.of(RESOURCE, set("cleanup.policy", "delete"));
    admin.incrementalAlterConfigs(change).all().get();
    until("delete", () -> setting(admin, "cleanup.policy").value());
    say("delete records", admin.deleteRecords(Map.of(one, RecordsToDelete.beforeOffset(10)))
        .lowWatermarks().get(one).get().lowWatermark());
    say("too many", nameOf(
        () -> admin.deleteRecords(Map.of(one, RecordsToDelete.beforeOffset(99))).all().get()));
    for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(),
        OffsetSpec.maxTimestamp(), OffsetSpec.forTimestamp(Clients.TIME + 15))) {
      say(spec.getClass().getSimpleName(),
          admin.listOffsets(Map.of(one, spec)).all().get().get(one).offset());
    }
    var node = admin.describeCluster().nodes().get().iterator().next().id();
    var dirs = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
    int replicas = 0;
    for (var dir : dirs.values()) {
      Clients.require(dir.error() == null && dir.totalBytes().getAsLong() > 0, "a log dir");
      for (var part : dir.replicaInfos().keySet()) replicas += part.topic().equals(TOPIC) ? 1 : 0;
    }
    say("log dirs", dirs.size(), "replicas", replicas);
  }

  static void groups(Admin admin, String servers) throws Exception {
    TopicPartition one = new TopicPartition(TOPIC, 1);
    admin.alterConsumerGroupOffsets("java-admin", Map.of(one, new OffsetAndMetadata(12))).all().get();
    var offsets = admin.listConsumerGroupOffsets("java-admin");
    say("offset", offsets.partitionsToOffsetAndMetadata().get().get(one).offset());
    Map<String, Object> states = new TreeMap<>();
    for (var group : admin.listConsumerGroups().all().get()) {
      if (group.groupId().equals("java-admin")) states.put(group.groupId(), group.state().get());
    }
    say("groups", states);
    say("delete offset", nameOf(
        () -> admin.deleteConsumerGroupOffsets("java-admin", Set.of(one)).all().get()));
    say("delete group", nameOf(() -> admin.deleteConsumerGroups(List.of("java-no")).all().get()));
    String range = "org.apache.kafka.clients.consumer.RangeAssignor";
    try (var member = new Groups.Member(servers, TOPIC, range)) {
      for (int round = 0; round < 600 && member.share() == 0; round++) {
        member.consumer.poll(Clients.WAIT);
      }
      say("describe", stateOf(servers, TOPIC));
      say("not empty", nameOf(() -> admin.deleteConsumerGroups(List.of(TOPIC)).all().get()));
    }
    say("delete", nameOf(() -> admin.deleteConsumerGroups(List.of(TOPIC)).all().get()));
  }
}
