import org.apache.kafka.server.storage.log.FetchIsolation;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Run Kafka's storage engine without a broker, in a separate JVM.
 *
 * append DIR RECORDS WARM_RECORDS   encode and append 1,000 records of 100 bytes at a time
 * fill DIR BYTES RECORDS_A_BATCH    append, and end without a flush, as a killed process does
 * scan DIR RECORDS                  append, then read all with a new byte[] per record, twice
 * recover DIR                       open a log that `fill` left; no record counts as flushed
 *
 * Each command prints one line with the seconds. `recover` also prints the bytes.
 */
public class KafkaEngine {
    static final int RECORD_BYTES = 100;

    static UnifiedLog open(File dir, boolean isClean) throws Exception {
        Map<String, String> keys = new HashMap<>();
        keys.put("segment.bytes", String.valueOf(1 << 30));
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        return UnifiedLog.create(dir, new LogConfig(keys), 0L, 0L, scheduler,
            new BrokerTopicStats(), Time.SYSTEM, 300000, new ProducerStateManagerConfig(86400000, false),
            600000, new LogDirFailureChannel(1), isClean, Optional.of(new Uuid(1, 1)));
    }

    static byte[][] values(int count) {
        Random random = new Random(1);
        byte[][] values = new byte[count][RECORD_BYTES];
        for (byte[] value : values) random.nextBytes(value);
        return values;
    }

    static long append(UnifiedLog log, byte[][] values, int batch, long records) throws Exception {
        ByteBuffer buffer = ByteBuffer.allocate(batch * (RECORD_BYTES + 32) + 1024);
        for (long done = 0; done < records; done += batch) {
            buffer.clear();
            long now = System.currentTimeMillis();
            MemoryRecordsBuilder builder = MemoryRecords.builder(
                buffer, Compression.NONE, TimestampType.CREATE_TIME, 0L);
            for (int i = 0; i < batch; i++)
                builder.append(now, null, values[(int) ((done + i) % values.length)]);
            log.appendAsLeader(builder.build(), 0);
        }
        return records;
    }

    static double scan(UnifiedLog log) throws Exception {
        long offset = 0, bytes = 0, started = System.nanoTime();
        while (offset < log.logEndOffset()) {
            var records = log.read(offset, 1 << 20, FetchIsolation.LOG_END, true).records;
            for (var batch : records.batches()) {
                batch.ensureValid();
                for (var record : batch) {
                    byte[] value = new byte[record.valueSize()];
                    record.value().get(value);
                    bytes += value.length;
                }
                offset = batch.nextOffset();
            }
        }
        if (bytes != offset * RECORD_BYTES) throw new IllegalStateException("records are missing");
        return (System.nanoTime() - started) / 1e9;
    }

    public static void main(String[] words) throws Exception {
        File dir = new File(words[1]);
        if (words[0].equals("recover")) {
            long bytes = 0;
            for (File file : dir.listFiles()) if (file.getName().endsWith(".log")) bytes += file.length();
            long started = System.nanoTime();
            UnifiedLog log = open(dir, false);
            double seconds = (System.nanoTime() - started) / 1e9;
            if (log.logEndOffset() == 0) throw new IllegalStateException("nothing was recovered");
            System.out.println(seconds + " " + bytes);
        } else {
            UnifiedLog log = open(dir, true);
            byte[][] values = values(16000);
            if (words[0].equals("scan")) {
                append(log, values, 1000, Long.parseLong(words[2]));
                scan(log);
                System.out.println(scan(log));
            } else if (words[0].equals("append")) {
                append(log, values, 1000, Long.parseLong(words[3]));
                long started = System.nanoTime();
                append(log, values, 1000, Long.parseLong(words[2]));
                System.out.println((System.nanoTime() - started) / 1e9);
            } else {
                int batch = Integer.parseInt(words[3]);
                append(log, values, batch, Long.parseLong(words[2]) / RECORD_BYTES / batch * batch);
                System.out.println("0");
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
