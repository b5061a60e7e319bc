import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Count words with Kafka Streams, at least once or exactly once. The words become keys, so a
 * repartition topic is between the two halves; the counts are in a state store with a changelog
 * topic. It ends when its input is closed; a test kills it before that, and its directory is lost
 * with it.
 */
public final class WordCount {
  private WordCount() {}

  public static void main(String[] words) throws Exception {
    Properties settings = new Properties();
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, words[0]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, words[1]);
    String name = words[2];
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, name);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, words[3]);
    settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
    settings.put("auto.offset.reset", "earliest");
    settings.put("session.timeout.ms", 3000);
    settings.put("heartbeat.interval.ms", 500);
    settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    StreamsBuilder builder = new StreamsBuilder();
    builder
        .stream(name + "-lines", Consumed.with(Serdes.String(), Serdes.String()))
        .flatMapValues(line -> List.of(line.split(" ")))
        .groupBy((key, word) -> word, Grouped.as("words"))
        .count(Materialized.as("counts"))
        .toStream()
        .mapValues(count -> Long.toString(count))
        .to(name + "-counts", Produced.with(Serdes.String(), Serdes.String()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    CountDownLatch failed = new CountDownLatch(1);
    streams.setStateListener(
        (now, before) -> {
          System.out.println(now);
          if (now == KafkaStreams.State.ERROR) failed.countDown();
        });
    streams.start();
    new Thread(
            () -> {
              try {
                while (System.in.read() >= 0) {}
              } catch (java.io.IOException error) {
                System.out.println(error);
              }
              failed.countDown();
            })
        .start();
    failed.await();
    streams.close(Duration.ofSeconds(20));
  }
}
