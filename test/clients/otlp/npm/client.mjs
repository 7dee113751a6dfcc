// An application with unmodified exporters of OpenTelemetry: reads a step a line, prints a line with what it made. ENCODING chooses
// between those for JSON and protobuf. With DSN alone, @sentry/node says where the spans go.
import { createInterface } from 'node:readline';
import { ROOT_CONTEXT, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BatchLogRecordProcessor, LoggerProvider } from '@opentelemetry/sdk-logs';
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base';

const { ENCODING = 'proto', DSN } = process.env;
const named = ENCODING === 'json' ? 'http' : 'proto';
const { OTLPTraceExporter } = await import(`@opentelemetry/exporter-trace-otlp-${named}`);
const { OTLPLogExporter } = await import(`@opentelemetry/exporter-logs-otlp-${named}`);

async function byDsn() {
  const Sentry = await import('@sentry/node');
  Sentry.init({ dsn: DSN, integrations: [Sentry.openTelemetryIntegration()] });
  return Sentry.getOtlpTracesEndpoint(DSN);
}

const resource = resourceFromAttributes({
  'service.name': 'shop',
  'service.version': '1.2.3',
  'deployment.environment.name': 'test',
});
const spans = new BatchSpanProcessor(new OTLPTraceExporter(DSN ? await byDsn() : {}));
const tracer = new BasicTracerProvider({ resource, spanProcessors: [spans] }).getTracer('clients', '7');
const logs = new BatchLogRecordProcessor({ exporter: new OTLPLogExporter() });
const logger = new LoggerProvider({ resource, processors: [logs] }).getLogger('clients', '7');
const within = (span) => trace.setSpan(ROOT_CONTEXT, span);

/** A span with a link, an event, an error and a child. */
function makeSpan({ name, child, attributes }) {
  const linked = tracer.startSpan('linked', {}, ROOT_CONTEXT);
  linked.end();
  const links = [{ context: linked.spanContext(), attributes: { why: 'retry' } }];
  const span = tracer.startSpan(name, { kind: SpanKind.SERVER, attributes, links }, ROOT_CONTEXT);
  span.addEvent('sold out', attributes);
  span.setStatus({ code: SpanStatusCode.ERROR, message: 'no stock' });
  const inner = tracer.startSpan(child, { kind: SpanKind.CLIENT }, within(span));
  inner.end();
  span.end();
  const { traceId, spanId } = span.spanContext();
  const { traceId: linkedTrace, spanId: linkedSpan } = linked.spanContext();
  return { trace: traceId, span: spanId, child: inner.spanContext().spanId, linkedTrace, linkedSpan };
}

function makeMany({ count }) {
  const first = tracer.startSpan('many', {}, ROOT_CONTEXT);
  for (let at = 1; at < count; at++) tracer.startSpan(`many ${at}`, {}, within(first)).end();
  first.end();
  return { trace: first.spanContext().traceId };
}

function makeLog({ text, attributes }) {
  const span = tracer.startSpan('logs', {}, ROOT_CONTEXT);
  const severity = { severityNumber: 13, severityText: 'WARN' };
  logger.emit({ body: text, attributes, ...severity, context: within(span) });
  span.end();
  return { trace: span.spanContext().traceId, span: span.spanContext().spanId };
}

async function flush() {
  await Promise.allSettled([spans.forceFlush(), logs.forceFlush()]);
  return {};
}

const STEPS = { span: makeSpan, many: makeMany, log: makeLog, flush };
for await (const line of createInterface({ input: process.stdin })) {
  const step = JSON.parse(line);
  console.log(JSON.stringify(await STEPS[step.do](step)));
}
process.exit(0);
