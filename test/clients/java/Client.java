// An application with an unmodified io.sentry: reads a step a line, prints a line with what the SDK returned.
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.sentry.ISpan;
import io.sentry.ITransaction;
import io.sentry.Sentry;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

class Client {
  static JsonObject answer(String name, Object value) {
    JsonObject answer = new JsonObject();
    answer.addProperty(name, value.toString());
    return answer;
  }

  static JsonObject trace(JsonObject step) {
    ITransaction transaction = Sentry.startTransaction(step.get("name").getAsString(), "task");
    ISpan child = transaction.startChild("task", step.get("child").getAsString());
    child.finish();
    transaction.finish();
    return answer("trace", transaction.getSpanContext().getTraceId());
  }

  static JsonObject log(String text) {
    Sentry.logger().info(text);
    return new JsonObject();
  }

  static JsonObject flush() {
    Sentry.flush(10_000);
    return new JsonObject();
  }

  static String text(JsonObject step) {
    return step.get("text").getAsString();
  }

  static JsonObject run(JsonObject step) {
    return switch (step.get("do").getAsString()) {
      case "exception" -> answer("id", Sentry.captureException(new IllegalStateException(text(step))));
      case "message" -> answer("id", Sentry.captureMessage(text(step)));
      case "log" -> log(text(step));
      case "trace" -> trace(step);
      case "flush" -> flush();
      default -> throw new IllegalArgumentException("no such step: " + step);
    };
  }

  public static void main(String[] arguments) throws Exception {
    Sentry.init(options -> {
      options.setDsn(System.getenv("DSN"));
      options.setTracesSampleRate(1.0);
      options.getLogs().setEnabled(true);
    });
    var steps = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line; (line = steps.readLine()) != null; ) {
      answers.println(run(JsonParser.parseString(line).getAsJsonObject()));
    }
    // Threads of the SDK would keep the program alive.
    System.exit(0);
  }
}
