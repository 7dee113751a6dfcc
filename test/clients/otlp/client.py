# An application with unmodified exporters of OpenTelemetry: reads a step a line, prints a line with what it made.
# With DSN alone, the OTLPIntegration of sentry-sdk says where the spans go.
import json, logging, os, sys
from opentelemetry import trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

if os.environ.get("PROTOCOL") == "grpc":
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
else:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

dsn = os.environ.get("DSN")
resource = Resource.create(
    {"service.name": "shop", "service.version": "1.2.3", "deployment.environment.name": "test"}
)
provider = TracerProvider(resource=resource)
if dsn:
    import sentry_sdk
    from sentry_sdk.integrations.otlp import OTLPIntegration

    trace.set_tracer_provider(provider)
    sentry_sdk.init(dsn=dsn, integrations=[OTLPIntegration()])
else:
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("clients", "7")
log_provider = LoggerProvider(resource=resource)
log_provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
logger = log_provider.get_logger("clients", "7")


def ids(span):
    context = span.get_span_context()
    return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)


def within(span):
    return trace.set_span_in_context(span)


# A span with a link, an event, an error and a child.
def make_span(step):
    linked = tracer.start_span("linked")
    linked.end()
    links = [trace.Link(linked.get_span_context(), {"why": "retry"})]
    span = tracer.start_span(
        step["name"], kind=trace.SpanKind.SERVER, attributes=step["attributes"], links=links
    )
    span.add_event("sold out", step["attributes"])
    span.set_status(trace.StatusCode.ERROR, "no stock")
    child = tracer.start_span(step["child"], within(span), kind=trace.SpanKind.CLIENT)
    child.end()
    span.end()
    (made, linked_ids) = (ids(span), ids(linked))
    return {
        "trace": made[0],
        "span": made[1],
        "child": ids(child)[1],
        "linkedTrace": linked_ids[0],
        "linkedSpan": linked_ids[1],
    }


def make_many(step):
    first = tracer.start_span("many")
    for at in range(1, step["count"]):
        tracer.start_span(f"many {at}", within(first)).end()
    first.end()
    return {"trace": ids(first)[0]}


def make_log(step):
    span = tracer.start_span("logs")
    logger.emit(
        body=step["text"],
        attributes=step["attributes"],
        severity_number=SeverityNumber.WARN,
        severity_text="WARN",
        context=within(span),
    )
    span.end()
    return dict(zip(("trace", "span"), ids(span)))


def flush(step):
    provider.force_flush()
    log_provider.force_flush()
    return {}


logging.disable()
STEPS = {"span": make_span, "many": make_many, "log": make_log, "flush": flush}
for line in sys.stdin:
    step = json.loads(line)
    print(json.dumps(STEPS[step["do"]](step)), flush=True)
os._exit(0)
