import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** Transactions with either protocol: the client takes the newest that the broker's level allows. */
final class Transactions {
  static final String FEATURE = "transaction.version";
  static final int PARTITIONS = 4;
  static final int TURNS_MAX = 100;

  private Transactions() {}

  /** Commits and aborts records and offsets; prints the epoch, and what a reader sees. */
  static void run(String servers) throws Exception {
    String topic = "java-transactions";
    String group = "java-transactions";
    TopicPartition place = new TopicPartition(topic, 0);
    try (Admin admin = admin(servers);
        KafkaProducer<String, String> producer = producer(servers, "java-tx")) {
      producer.initTransactions();
      int begun = epoch(admin, "java-tx");
      for (int turn = 0; turn < 6; turn++) {
        producer.beginTransaction();
        for (int number = 0; number < 10 * PARTITIONS; number++) {
          producer.send(new ProducerRecord<>(topic, number % PARTITIONS, null, "turn " + turn));
        }
        producer.sendOffsetsToTransaction(
            Map.of(place, new OffsetAndMetadata(turn + 1)), new ConsumerGroupMetadata(group));
        if (turn % 2 == 0) producer.commitTransaction();
        else producer.abortTransaction();
      }
      producer.beginTransaction();
      producer.abortTransaction(); // it has no partitions
      System.out.println("epochs " + (epoch(admin, "java-tx") - begun));
      System.out.println("offset " + offset(admin, group, place));
      fence(servers, producer, topic);
    }
    System.out.println("committed " + committed(servers, topic));
  }

  /** Lets a second producer take over the transactional id. */
  static void fence(String servers, KafkaProducer<String, String> old, String topic)
      throws Exception {
    old.beginTransaction();
    old.send(new ProducerRecord<>(topic, 0, null, "zombie")).get();
    try (KafkaProducer<String, String> next = producer(servers, "java-tx")) {
      next.initTransactions();
      try {
        old.commitTransaction();
        System.out.println("the zombie committed");
      } catch (KafkaException error) {
        System.out.println("fenced " + error.getClass().getSimpleName());
      }
      next.beginTransaction();
      next.send(new ProducerRecord<>(topic, 0, null, "next"));
      next.commitTransaction();
    }
  }

  /** Changes the level between transactions of one producer, which hears of it by itself. */
  static void change(String servers) throws Exception {
    try (Admin admin = admin(servers);
        KafkaProducer<String, String> producer =
            producer(servers, "java-change", "connections.max.idle.ms", 100)) {
      producer.initTransactions();
      int count = 0;
      for (int level : new int[] {1, 2, 1, 2}) {
        UpgradeType type = level == 1 ? UpgradeType.SAFE_DOWNGRADE : UpgradeType.UPGRADE;
        Map<String, FeatureUpdate> update =
            Map.of(FEATURE, new FeatureUpdate((short) level, type));
        admin.updateFeatures(update, new UpdateFeaturesOptions()).all().get();
        boolean isRaising = level == 2;
        int same = 0;
        for (int turn = 0; turn < TURNS_MAX && same < 3; turn++) {
          int before = epoch(admin, "java-change");
          producer.beginTransaction();
          producer.send(new ProducerRecord<>("java-change", turn % PARTITIONS, null, "x"));
          // Without it, the client may send this record with the protocol of the next transaction.
          producer.flush();
          producer.commitTransaction();
          count++;
          same = epoch(admin, "java-change") > before == isRaising ? same + 1 : 0;
          Thread.sleep(150);
        }
        System.out.println("level " + level + " followed " + (same == 3));
      }
      int seen = committed(servers, "java-change").values().stream().mapToInt(one -> one).sum();
      System.out.println("all committed " + (seen == count));
    }
  }

  static Admin admin(String servers) {
    return Admin.create(Map.of("bootstrap.servers", servers));
  }

  static KafkaProducer<String, String> producer(String servers, String name, Object... settings) {
    List<Object> all = new ArrayList<>(List.of(settings));
    all.addAll(List.of("transactional.id", name));
    return Clients.producer(servers, all.toArray());
  }

  /** Gives the epoch at the coordinator, after the markers of the last transaction. */
  static int epoch(Admin admin, String name) throws Exception {
    while (true) {
      var found = admin.describeTransactions(List.of(name)).description(name).get();
      if (!found.state().toString().startsWith("Prepare")) return found.producerEpoch();
      Thread.sleep(5);
    }
  }

  static long offset(Admin admin, String group, TopicPartition place)
      throws InterruptedException, ExecutionException {
    return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(place)
        .offset();
  }

  /** Counts the committed values of a topic. */
  static Map<String, Integer> committed(String servers, String topic) {
    Map<String, Integer> counts = new TreeMap<>();
    try (KafkaConsumer<String, String> consumer =
        Clients.consumer(servers, "isolation.level", "read_committed")) {
      List<TopicPartition> places = new ArrayList<>();
      for (int number = 0; number < PARTITIONS; number++) {
        places.add(new TopicPartition(topic, number));
      }
      consumer.assign(places);
      consumer.seekToBeginning(places);
      Map<TopicPartition, Long> ends = consumer.endOffsets(places);
      while (places.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
        for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(100))) {
          counts.merge(one.value(), 1, Integer::sum);
        }
      }
    }
    return counts;
  }
}
