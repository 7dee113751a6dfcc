import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.common.AttributesBuilder;
import io.opentelemetry.api.logs.Logger;
import io.opentelemetry.api.logs.Severity;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Context;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.autoconfigure.AutoConfiguredOpenTelemetrySdk;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.logging.LogManager;

/**
 * An application with unmodified exporters of OpenTelemetry, set up by the environment: reads a step a line, prints a line with what it
 * made.
 */
class OtlpClient {
  static final Gson GSON = new Gson();
  static OpenTelemetrySdk sdk;
  static Tracer tracer;
  static Logger logger;

  static <T> List<T> listOf(JsonArray list, Function<JsonElement, T> convert) {
    List<T> made = new ArrayList<>();
    for (JsonElement one : list) made.add(convert.apply(one));
    return made;
  }

  static boolean isWhole(JsonElement value) {
    return !value.getAsString().contains(".");
  }

  static void put(AttributesBuilder made, String key, JsonElement value) {
    if (value.isJsonArray()) {
      JsonArray list = value.getAsJsonArray();
      var first = list.get(0).getAsJsonPrimitive();
      if (first.isString()) made.put(AttributeKey.stringArrayKey(key), listOf(list, JsonElement::getAsString));
      else if (first.isBoolean()) made.put(AttributeKey.booleanArrayKey(key), listOf(list, JsonElement::getAsBoolean));
      else if (isWhole(first)) made.put(AttributeKey.longArrayKey(key), listOf(list, JsonElement::getAsLong));
      else made.put(AttributeKey.doubleArrayKey(key), listOf(list, JsonElement::getAsDouble));
      return;
    }
    var one = value.getAsJsonPrimitive();
    if (one.isString()) made.put(key, one.getAsString());
    else if (one.isBoolean()) made.put(key, one.getAsBoolean());
    else if (isWhole(one)) made.put(key, one.getAsLong());
    else made.put(key, one.getAsDouble());
  }

  static Attributes attributesOf(JsonObject step) {
    AttributesBuilder made = Attributes.builder();
    for (var entry : step.getAsJsonObject("attributes").entrySet()) put(made, entry.getKey(), entry.getValue());
    return made.build();
  }

  static String traceOf(Span span) {
    return span.getSpanContext().getTraceId();
  }

  static String idOf(Span span) {
    return span.getSpanContext().getSpanId();
  }

  /** A span with a link, an event, an error and a child. */
  static Map<String, String> makeSpan(JsonObject step) {
    Attributes attributes = attributesOf(step);
    Span linked = tracer.spanBuilder("linked").setNoParent().startSpan();
    linked.end();
    Span span =
        tracer
            .spanBuilder(step.get("name").getAsString())
            .setNoParent()
            .setSpanKind(SpanKind.SERVER)
            .setAllAttributes(attributes)
            .addLink(linked.getSpanContext(), Attributes.of(AttributeKey.stringKey("why"), "retry"))
            .startSpan();
    span.addEvent("sold out", attributes);
    span.setStatus(StatusCode.ERROR, "no stock");
    Span child =
        tracer
            .spanBuilder(step.get("child").getAsString())
            .setParent(Context.root().with(span))
            .setSpanKind(SpanKind.CLIENT)
            .startSpan();
    child.end();
    span.end();
    return Map.of(
        "trace", traceOf(span),
        "span", idOf(span),
        "child", idOf(child),
        "linkedTrace", traceOf(linked),
        "linkedSpan", idOf(linked));
  }

  static Map<String, String> makeMany(JsonObject step) {
    Span first = tracer.spanBuilder("many").setNoParent().startSpan();
    for (int at = 1; at < step.get("count").getAsInt(); at++)
      tracer.spanBuilder("many " + at).setParent(Context.root().with(first)).startSpan().end();
    first.end();
    return Map.of("trace", traceOf(first));
  }

  static Map<String, String> makeLog(JsonObject step) {
    Span span = tracer.spanBuilder("logs").setNoParent().startSpan();
    logger
        .logRecordBuilder()
        .setBody(step.get("text").getAsString())
        .setAllAttributes(attributesOf(step))
        .setSeverity(Severity.WARN)
        .setSeverityText("WARN")
        .setContext(Context.root().with(span))
        .emit();
    span.end();
    return Map.of("trace", traceOf(span), "span", idOf(span));
  }

  static Map<String, String> flush() {
    sdk.getSdkTracerProvider().forceFlush().join(60, TimeUnit.SECONDS);
    sdk.getSdkLoggerProvider().forceFlush().join(60, TimeUnit.SECONDS);
    return Map.of();
  }

  static Map<String, String> run(JsonObject step) {
    switch (step.get("do").getAsString()) {
      case "span":
        return makeSpan(step);
      case "many":
        return makeMany(step);
      case "log":
        return makeLog(step);
      default:
        return flush();
    }
  }

  public static void main(String[] args) throws Exception {
    LogManager.getLogManager().reset();
    sdk = AutoConfiguredOpenTelemetrySdk.builder().disableShutdownHook().build().getOpenTelemetrySdk();
    tracer = sdk.tracerBuilder("clients").setInstrumentationVersion("7").build();
    logger = sdk.getLogsBridge().loggerBuilder("clients").setInstrumentationVersion("7").build();
    var steps = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line; (line = steps.readLine()) != null; )
      answers.println(GSON.toJson(run(GSON.fromJson(line, JsonObject.class))));
    System.exit(0);
  }
}
