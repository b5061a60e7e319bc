import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own producer and consumer, as their users call them. Each step prints what it found, and
 * the test compares the lines. The classes of groups and of administration are beside this one.
 */
public final class Clients {
  static final int COUNT = 500;
  static final long TIME = 1_700_000_000_000L;
  static final Duration WAIT = Duration.ofMillis(100);
  static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

  private Clients() {}

  public static void main(String[] words) throws Exception {
    String servers = words[0];
    switch (words[1]) {
      case "records" -> {
        for (String codec : CODECS) records(servers, codec);
      }
      case "times" -> times(servers);
      case "group" -> Groups.share(servers, words[2]);
      case "static" -> Groups.restart(servers);
      case "migrate" -> Groups.migrate(servers, words[2]);
      case "resume" -> Groups.resume(servers);
      case "admin" -> Administration.run(servers);
      case "transactions" -> Transactions.run(servers);
      case "levels" -> Transactions.change(servers);
      default -> throw new IllegalArgumentException(words[1]);
    }
  }

  static KafkaProducer<String, String> producer(String servers, Object... settings) {
    Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", servers));
    for (int at = 0; at < settings.length; at += 2) all.put((String) settings[at], settings[at + 1]);
    return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
  }

  static KafkaConsumer<String, String> consumer(String servers, Object... settings) {
    Map<String, Object> all =
        new HashMap<>(Map.of("bootstrap.servers", servers, "auto.offset.reset", "earliest"));
    all.put("enable.auto.commit", false);
    for (int at = 0; at < settings.length; at += 2) all.put((String) settings[at], settings[at + 1]);
    return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
  }

  static String valueOf(int number) {
    return ("value " + number + " ").repeat(5);
  }

  /** An idempotent producer, which is the default, with small batches; then a reader. */
  static void records(String servers, String codec) throws Exception {
    String topic = "java-" + codec;
    List<Future<RecordMetadata>> sent = new ArrayList<>();
    try (var producer =
        producer(servers, "compression.type", codec, "batch.size", 2000, "linger.ms", 5)) {
      for (int number = 0; number < COUNT; number++) {
        byte[] header = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
        sent.add(
            producer.send(
                new ProducerRecord<>(
                    topic, 0, TIME + number, "key " + number, valueOf(number),
                    List.of(new RecordHeader("h", header)))));
      }
      for (int number = 0; number < COUNT; number++) {
        require(sent.get(number).get().offset() == number, "offset " + number);
      }
    }
    int next = 0;
    TopicPartition partition = new TopicPartition(topic, 0);
    try (var consumer = consumer(servers)) {
      consumer.assign(List.of(partition));
      while (next < COUNT) {
        for (ConsumerRecord<String, String> record : consumer.poll(WAIT)) {
          String header = new String(record.headers().lastHeader("h").value());
          require(
              record.offset() == next && record.timestamp() == TIME + next
                  && record.key().equals("key " + next) && record.value().equals(valueOf(next))
                  && header.equals("" + next),
              record.toString());
          next++;
        }
      }
      System.out.println(codec + " " + next + " " + consumer.endOffsets(List.of(partition)));
    }
  }

  /** Offsets by time, also inside a compressed batch; and a position that is out of range. */
  static void times(String servers) {
    TopicPartition partition = new TopicPartition("java-zstd", 0);
    try (var consumer = consumer(servers)) {
      for (long after : new long[] {-5, 0, 123, 499, 500}) {
        var found = consumer.offsetsForTimes(Map.of(partition, TIME + after)).get(partition);
        String row = found == null ? "none" : found.offset() + " " + (found.timestamp() - TIME);
        System.out.println(after + ": " + row);
      }
      System.out.println(consumer.beginningOffsets(List.of(partition)));
      consumer.assign(List.of(partition));
      consumer.seek(partition, 10_000);
      for (int next = -1; next < 0; ) {
        for (ConsumerRecord<String, String> record : consumer.poll(WAIT)) {
          next = next < 0 ? (int) record.offset() : next;
        }
        if (next >= 0) System.out.println("reset to " + next);
      }
    }
    try (var consumer = consumer(servers, "auto.offset.reset", "none")) {
      consumer.assign(List.of(partition));
      consumer.seek(partition, 10_000);
      System.out.println(Administration.nameOf(() -> pollUntilError(consumer)));
    }
  }

  private static void pollUntilError(KafkaConsumer<String, String> consumer) {
    while (true) require(consumer.poll(WAIT).isEmpty(), "nothing is there");
  }

  static void fill(String servers, String topic, int partitions, int from) throws Exception {
    try (var producer = producer(servers)) {
      for (int number = from; number < from + COUNT; number++) {
        producer.send(new ProducerRecord<>(topic, number % partitions, null, "" + number));
      }
    }
  }

  static void require(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }

  static <T extends Comparable<T>> List<T> sorted(Iterable<T> some) {
    List<T> all = new ArrayList<>();
    some.forEach(all::add);
    Collections.sort(all);
    return all;
  }
}
