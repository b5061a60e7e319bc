// A client of Apache Kafka for tests: makes topics, produces, consumes as JSON lines, moves replicas.
//
//   java -cp 'libs/*' KafkaPeer.java BOOTSTRAP < commands
//
// One command a line on stdin, one answer a line on stdout: "ok", or what was asked for, then "ok".
// Bytes are base64 in both directions, "-" is null.
import java.io.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

public class KafkaPeer {
    static String bootstrap;
    static Admin admin;
    static final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                run(line.split(" "));
                System.out.println("ok");
            } catch (Exception error) {
                StringWriter text = new StringWriter();
                error.printStackTrace(new PrintWriter(text));
                System.err.println(line + "\n" + text);
                System.out.println("error " + error.toString().replace("\n", " "));
            }
            System.out.flush();
        }
        System.exit(0);
    }

    static void run(String[] words) throws Exception {
        switch (words[0]) {
            case "topic" -> topic(words);
            case "config" -> config(words);
            case "delete" -> admin.deleteTopics(List.of(words[1])).all().get();
            case "move" -> move(words);
            case "producer" -> producer(words);
            case "begin" -> producers.get(words[1]).beginTransaction();
            case "commit" -> producers.get(words[1]).commitTransaction();
            case "abort" -> producers.get(words[1]).abortTransaction();
            case "send" -> send(words);
            case "random" -> random(words);
            case "flush" -> producers.get(words[1]).flush();
            case "close" -> producers.remove(words[1]).close();
            case "consume" -> consume(words[1], words[2]);
            case "group" -> group(words[1], words[2]);
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    // topic NAME PARTITIONS [key=value...]
    static void topic(String[] words) throws Exception {
        NewTopic topic = new NewTopic(words[1], Integer.parseInt(words[2]), (short) 1);
        Map<String, String> settings = new HashMap<>();
        for (int at = 3; at < words.length; at++)
            settings.put(words[at].split("=")[0], words[at].split("=")[1]);
        admin.createTopics(List.of(topic.configs(settings))).all().get();
    }

    // config TOPIC|broker:ID key=value...
    static void config(String[] words) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (int at = 2; at < words.length; at++)
            changes.add(new AlterConfigOp(
                new ConfigEntry(words[at].split("=")[0], words[at].split("=")[1]),
                AlterConfigOp.OpType.SET));
        boolean isBroker = words[1].startsWith("broker:");
        var resource = new ConfigResource(
            isBroker ? ConfigResource.Type.BROKER : ConfigResource.Type.TOPIC,
            words[1].substring(isBroker ? 7 : 0));
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
    }

    // move TOPIC PARTITION DIRECTORY
    static void move(String[] words) throws Exception {
        var replica = new TopicPartitionReplica(words[1], Integer.parseInt(words[2]), 1);
        admin.alterReplicaLogDirs(Map.of(replica, words[3])).all().get();
    }

    // producer NAME CODEC TRANSACTIONAL_ID|- IDEMPOTENT [key=value...]
    static void producer(String[] words) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", words[2]);
        settings.put("linger.ms", "1000");
        settings.put("batch.size", "65536");
        settings.put("enable.idempotence", words[4]);
        settings.put("retries", "0");
        settings.put("request.timeout.ms", "20000");
        settings.put("delivery.timeout.ms", "30000");
        if (words[4].equals("true")) settings.put("retries", "5");
        if (!words[3].equals("-")) settings.put("transactional.id", words[3]);
        for (int at = 5; at < words.length; at++)
            settings.put(words[at].split("=")[0], words[at].split("=")[1]);
        var producer = new KafkaProducer<byte[], byte[]>(
            settings, new ByteArraySerializer(), new ByteArraySerializer());
        if (!words[3].equals("-")) producer.initTransactions();
        producers.put(words[1], producer);
    }

    // send PRODUCER TOPIC PARTITION TIMESTAMP KEY VALUE [NAME VALUE]...
    static void send(String[] words) {
        var record = new ProducerRecord<byte[], byte[]>(
            words[2], Integer.parseInt(words[3]),
            words[4].equals("-") ? null : Long.parseLong(words[4]), bytes(words[5]), bytes(words[6]));
        for (int at = 7; at < words.length; at += 2)
            record.headers().add(new String(bytes(words[at])), bytes(words[at + 1]));
        producers.get(words[1]).send(record);
    }

    // random PRODUCER TOPIC PARTITIONS COUNT SEED: keys of a few, tombstones, headers, all sizes
    static void random(String[] words) {
        Random random = new Random(Long.parseLong(words[5]));
        int partitions = Integer.parseInt(words[3]);
        for (int count = Integer.parseInt(words[4]); count > 0; count--) {
            byte[] key = random.nextInt(4) == 0 ? null : ("key-" + random.nextInt(50)).getBytes();
            byte[] value = null;
            if (random.nextInt(10) > 0) {
                value = new byte[random.nextInt(random.nextInt(20) == 0 ? 20_000 : 200)];
                if (random.nextBoolean()) random.nextBytes(value);
            }
            var record = new ProducerRecord<byte[], byte[]>(
                words[2], random.nextInt(partitions), null, key, value);
            for (int headers = random.nextInt(8) - 4; headers > 0; headers--)
                record.headers().add("h" + headers, random.nextBoolean() ? null : new byte[headers]);
            producers.get(words[1]).send(record);
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(String isolation, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", isolation);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("exclude.internal.topics", "false");
        if (group != null) settings.put("group.id", group);
        return new KafkaConsumer<>(
            settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    // consume ISOLATION TOPIC|*: what a consumer gets of each partition, then where it ends
    static void consume(String isolation, String wanted) throws Exception {
        try (var consumer = consumer(isolation, null)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (var topic : new TreeMap<>(consumer.listTopics()).entrySet())
                if (wanted.equals("*") ? !topic.getKey().startsWith("__") : topic.getKey().equals(wanted))
                    for (PartitionInfo each : topic.getValue())
                        partitions.add(new TopicPartition(each.topic(), each.partition()));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> starts = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            StringBuilder lines = new StringBuilder();
            while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each)))
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofSeconds(1)))
                    lines.append(json(each)).append('\n');
            for (TopicPartition each : partitions)
                lines.append(String.format(
                    "{\"topic\":\"%s\",\"partition\":%d,\"start\":%d,\"end\":%d}%n",
                    each.topic(), each.partition(), starts.get(each), ends.get(each)));
            System.out.print(lines);
        }
    }

    // group TOPIC GROUP: commit the end of each partition, so that __consumer_offsets exists
    static void group(String topic, String group) throws Exception {
        try (var consumer = consumer("read_uncommitted", group)) {
            var partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(1)));
        }
    }

    static String json(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder headers = new StringBuilder();
        for (Header each : record.headers())
            headers.append(headers.isEmpty() ? "" : ",")
                .append("[\"" + each.key() + "\"," + text(each.value()) + "]");
        return String.format(
            "{\"topic\":\"%s\",\"partition\":%d,\"offset\":%d,\"timestamp\":%d,\"key\":%s,"
                + "\"value\":%s,\"headers\":[%s]}",
            record.topic(), record.partition(), record.offset(), record.timestamp(),
            text(record.key()), text(record.value()), headers);
    }

    static byte[] bytes(String word) {
        return word.equals("-") ? null : Base64.getDecoder().decode(word.equals("=") ? "" : word);
    }

    static String text(byte[] bytes) {
        return bytes == null ? "null" : "\"" + Base64.getEncoder().encodeToString(bytes) + "\"";
    }
}
