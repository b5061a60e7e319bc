import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Scanner;
import org.apache.kafka.common.utils.Exit;

/**
 * Run many of Kafka's tools in one JVM, one after the other: a JVM for each would take minutes.
 *
 * A line of stdin is one call: the class of the tool, what it reads from its own stdin, and its
 * words, each in Base64 after a dot. The answer is one line: the exit code, and stdout and stderr
 * in Base64.
 */
public class Toolbox {
    /** Ends a tool that wants to end the JVM. */
    static class Ended extends Error {
        Ended() {
            super("", null, false, false);
        }
    }

    static final ByteArrayOutputStream OUT = new ByteArrayOutputStream();
    static final ByteArrayOutputStream ERR = new ByteArrayOutputStream();
    static final List<Runnable> HOOKS = new ArrayList<>();
    static Integer code;  // of the call that runs; null until its tool wants to end

    public static void main(String[] none) {
        PrintStream answers = System.out;
        Scanner calls = new Scanner(System.in, StandardCharsets.UTF_8);
        // Kafka's Scala code keeps the streams that it saw first, so all calls share these two.
        System.setOut(shared(OUT));
        System.setErr(shared(ERR));
        Exit.Procedure end = (given, message) -> {
            code = code == null ? given : code;
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        while (calls.hasNextLine()) {
            String[] words = Arrays.stream(calls.nextLine().split(" "))
                .map(word -> new String(Base64.getDecoder().decode(word.substring(1)),
                    StandardCharsets.UTF_8))
                .toArray(String[]::new);
            System.setIn(new ByteArrayInputStream(words[1].getBytes(StandardCharsets.UTF_8)));
            int found = call(words[0], Arrays.copyOfRange(words, 2, words.length));
            answers.println(found + " ." + encoded(OUT) + " ." + encoded(ERR));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);  // threads of tools may still run
    }

    /** Give a stream that a tool prints to until it wants to end; its JVM would be gone then. */
    static PrintStream shared(ByteArrayOutputStream kept) {
        return new PrintStream(new OutputStream() {
            @Override
            public void write(int one) {
                if (code == null) {
                    kept.write(one);
                }
            }
        }, true, StandardCharsets.UTF_8);
    }

    static int call(String name, String[] words) {
        OUT.reset();
        ERR.reset();
        HOOKS.clear();
        code = null;
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) words);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                System.err.println("Exception in thread \"main\" " + thrown.getCause());
                code = 1;
            }
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException(name, error);
        }
        int found = code == null ? 0 : code;
        code = null;
        HOOKS.forEach(Runnable::run);
        return found;
    }

    static String encoded(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
