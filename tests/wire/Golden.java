import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** Reads lines "name version json" and prints "name version base64", or "-" for what it lacks. */
public class Golden {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(" ", 3);
            short version = Short.parseShort(parts[1]);
            boolean isData = parts[0].matches(".*(Request|Response|Header)");
            boolean isRecord = parts[0].matches("(OffsetCommit|GroupMetadata|ConsumerGroup.*)(Key|Value)");
            boolean isState = parts[0].matches("TransactionLog(Key|Value)");
            String room = isRecord ? "coordinator.group.generated."
                : isState ? "coordinator.transaction.generated." : "common.message.";
            String name = "org.apache.kafka." + room + parts[0] + (isData ? "Data" : "");
            String encoded = "-";
            try {
                Message message = (Message) Class.forName(name + "JsonConverter")
                    .getMethod("read", JsonNode.class, short.class)
                    .invoke(null, mapper.readTree(parts[2]), version);
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(buffer), cache, version);
                encoded = Base64.getEncoder().encodeToString(buffer.array());
            } catch (ReflectiveOperationException | RuntimeException missing) {
                encoded = "-";
            }
            System.out.println(parts[0] + " " + parts[1] + " " + encoded);
        }
    }
}
