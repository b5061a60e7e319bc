import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Does what exactly_once_worker.py does, with Kafka's own client, which raises its epoch with each
 * transaction: consume, transform, produce, until the process is killed.
 *
 * <pre>java ExactlyOnceWorker SERVERS NAME SEED PARTITIONS</pre>
 */
public final class ExactlyOnceWorker {
  static final String GROUP = "workers";
  static final int RECORDS_MAX = 20;

  private ExactlyOnceWorker() {}

  public static void main(String[] words) {
    Random random = new Random(words[2].hashCode());
    int count = Integer.parseInt(words[3]);
    while (true) {
      try {
        session(words[0], words[1], random, count);
      } catch (KafkaException error) {
        say("failed " + error);
      }
    }
  }

  static void say(String line) {
    System.out.println(line);
    System.out.flush();
  }

  /** Does transactions until one fails in a way that needs another producer. */
  static void session(String servers, String name, Random random, int count) {
    Map<String, Object> settings = new HashMap<>(Map.of(
        "bootstrap.servers", servers, "transactional.id", name, "transaction.timeout.ms", 20_000,
        "reconnect.backoff.max.ms", 200, "max.block.ms", 30_000, "request.timeout.ms", 5_000,
        "delivery.timeout.ms", 15_000));
    try (KafkaProducer<String, String> producer =
        new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
      producer.initTransactions();
      while (true) {
        try (KafkaConsumer<String, String> consumer = consumer(servers, count)) {
          while (once(consumer, producer, random, count)) say("done");
        } catch (KafkaException error) {
          say("aborted " + error);
          producer.abortTransaction(); // raises an error if this producer cannot continue
        }
      }
    }
  }

  /** Begins at the committed offsets; offsets of an open transaction are waited for. */
  static KafkaConsumer<String, String> consumer(String servers, int count) {
    Map<String, Object> settings = new HashMap<>(Map.of(
        "bootstrap.servers", servers, "group.id", GROUP, "isolation.level", "read_committed",
        "enable.auto.commit", false, "auto.offset.reset", "earliest",
        "reconnect.backoff.max.ms", 200, "max.poll.records", RECORDS_MAX));
    KafkaConsumer<String, String> made =
        new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    List<TopicPartition> places = new ArrayList<>();
    for (int number = 0; number < count; number++) places.add(new TopicPartition("inputs", number));
    made.assign(places);
    return made;
  }

  /** Does one transaction; returns false if it was aborted, so that its records come again. */
  static boolean once(KafkaConsumer<String, String> consumer,
      KafkaProducer<String, String> producer, Random random, int count) {
    List<ConsumerRecord<String, String>> records = new ArrayList<>();
    consumer.poll(Duration.ofMillis(100)).forEach(records::add);
    if (records.isEmpty()) return true;
    producer.beginTransaction();
    String name = UUID.randomUUID().toString().substring(0, 12);
    for (ConsumerRecord<String, String> one : records) {
      String value = name + "," + records.size() + "," + one.partition() + "," + one.offset();
      producer.send(new ProducerRecord<>("outputs", random.nextInt(count), null, value));
    }
    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
    for (TopicPartition one : consumer.assignment()) {
      offsets.put(one, new OffsetAndMetadata(consumer.position(one)));
    }
    producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(GROUP));
    if (random.nextInt(10) == 0) {
      if (random.nextBoolean()) producer.flush(); // otherwise batches are still on their way
      producer.abortTransaction();
      return false;
    }
    producer.commitTransaction();
    return true;
  }
}
