// Sum up the records of a topic that Apache Kafka's own consumer reads.
//
//   java -cp 'libs/*' ConsumerSums.java BOOTSTRAP TOPIC
//
// Prints a line for each partition: its number, records, bytes of values, sum of timestamps (ms).
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ConsumerSums {
    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "auto.offset.reset", "earliest",
            "enable.auto.commit", "false", "max.poll.records", "10000");
        try (var consumer = new KafkaConsumer<byte[], byte[]>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (PartitionInfo each : consumer.partitionsFor(arguments[1]))
                partitions.add(new TopicPartition(each.topic(), each.partition()));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            Map<Integer, long[]> sums = new TreeMap<>();
            while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each)))
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofSeconds(1))) {
                    long[] row = sums.computeIfAbsent(each.partition(), any -> new long[3]);
                    row[0]++;
                    row[1] += each.value().length;
                    row[2] += each.timestamp();
                }
            sums.forEach((partition, row) -> System.out.printf(
                "%d %d %d %d%n", partition, row[0], row[1], row[2]));
        }
    }
}
