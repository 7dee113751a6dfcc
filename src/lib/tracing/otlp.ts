/**
 * Sends spans to a collector with the SDK of OpenTelemetry. Only this file imports the SDK, and the
 * file is loaded only when tracing is on.
 */
import {
  type Context,
  createTraceState,
  DiagLogLevel,
  diag,
  type Span as OtelSpan,
  ROOT_CONTEXT,
  SpanKind,
  type SpanOptions,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import { type ExportResult, ExportResultCode, parseTraceParent } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import {
  BasicTracerProvider,
  BatchSpanProcessor,
  ParentBasedSampler,
  type ReadableSpan,
  type SpanExporter,
  TraceIdRatioBasedSampler,
} from '@opentelemetry/sdk-trace-base';
import { VERSION } from '../../version.ts';
import { systemClock } from '../clock.ts';
import { orLate } from '../late.ts';
import type { Log } from '../log.ts';
import type { Carrier, Facts, Span, Step, Tracing, TracingSettings } from './tracing.ts';

/**
 * Fraction of the requests without a client's trace that is sampled, unless the operator sets a
 * sampler. The SDK's default would sample all of them.
 */
const RATIO_DEFAULT = 0.01;
/**
 * Most traces that one worker begins in a second. Without this bound, a client that marks all its
 * requests as sampled would slow down the others.
 */
export const TRACES_PER_SEC_MAX = 100;
/** Time-out of one export. A process that stops waits this long for its last export. */
const EXPORT_MS_MAX = 3_000;

const KIND_OF_STEP: Readonly<Record<Step, SpanKind>> = {
  receive: SpanKind.INTERNAL,
  admit: SpanKind.CLIENT,
  publish: SpanKind.PRODUCER,
  process: SpanKind.CONSUMER,
};

export type OtlpOptions = TracingSettings & { service: string; log: Log };

/**
 * Reads the headers of W3C Trace Context, and returns a context whose parent is the span that they
 * name. Returns undefined when they name no valid span.
 */
function parentOf({ traceparent, tracestate }: Carrier): Context | undefined {
  const parent = traceparent === '' ? null : parseTraceParent(traceparent);
  if (!parent) return undefined;
  const traceState = tracestate === '' ? undefined : createTraceState(tracestate);
  return trace.setSpanContext(ROOT_CONTEXT, { ...parent, isRemote: true, ...(traceState && { traceState }) });
}

/**
 * A clock for the spans of one request, in Unix ms with fractions. The clock of OpenTelemetry's
 * package begins each span at a whole millisecond, which it reads anew. With that clock, a step
 * could end after the request that contains the step.
 */
function traceClock(): () => number {
  const aheadMs = systemClock.now() - systemClock.monotonic();
  return () => aheadMs + systemClock.monotonic();
}

class SampledSpan implements Span {
  readonly #tracer: Tracer;
  readonly #span: OtelSpan;
  readonly #now: () => number;

  /** @param now the clock that gave the start of the span */
  constructor(tracer: Tracer, span: OtelSpan, now: () => number) {
    this.#tracer = tracer;
    this.#span = span;
    this.#now = now;
  }

  get traceparent(): string {
    const { traceId, spanId } = this.#span.spanContext();
    return `00-${traceId}-${spanId}-01`;
  }

  step(name: Step): Span {
    const parent = trace.setSpan(ROOT_CONTEXT, this.#span);
    const options = { kind: KIND_OF_STEP[name], startTime: this.#now() };
    return new SampledSpan(this.#tracer, this.#tracer.startSpan(name, options, parent), this.#now);
  }

  end(facts: Facts = {}, failure?: string): void {
    if (!this.#span.isRecording()) return;
    this.#span.setAttributes(facts);
    if (failure !== undefined) this.#span.setStatus({ code: SpanStatusCode.ERROR, message: failure });
    this.#span.end(this.#now());
  }
}

/** Logs once when the collector stops taking spans, and once when it takes spans again. */
class WatchedExporter implements SpanExporter {
  readonly #exporter: OTLPTraceExporter;
  readonly #log: Log;
  #isAway = false;

  constructor(exporter: OTLPTraceExporter, log: Log) {
    this.#exporter = exporter;
    this.#log = log;
  }

  export(spans: ReadableSpan[], done: (result: ExportResult) => void): void {
    this.#exporter.export(spans, (result) => {
      const isAway = result.code !== ExportResultCode.SUCCESS;
      if (isAway && !this.#isAway)
        this.#log.warn({ reason: result.error?.message }, 'tracing: spans are not taken, and are dropped');
      if (!isAway && this.#isAway) this.#log.info('tracing: spans are taken again');
      this.#isAway = isAway;
      done(result);
    });
  }

  shutdown(): Promise<void> {
    return this.#exporter.shutdown();
  }
}

/**
 * Tracing by the SDK. The SDK keeps ended spans (at most 2,048 unless OTEL_BSP_MAX_QUEUE_SIZE is
 * set) and sends them by itself. While the collector is away, spans that do not fit are dropped.
 */
export class OtlpTracing implements Tracing {
  readonly #provider: BasicTracerProvider;
  readonly #tracer: Tracer;
  #second = 0;
  #begun = 0;

  constructor({ service, log, hasSampler, hasTimeout }: OtlpOptions) {
    // The SDK reports bad settings here at once. The logger is removed below, or the SDK would
    // later report every export that failed.
    const warn = (message: string): void => log.warn({ reason: message }, 'tracing: a setting is not used');
    const quiet = (): void => undefined;
    const said = { error: warn, warn, info: quiet, debug: quiet, verbose: quiet };
    diag.setLogger(said, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
    const exporter = new OTLPTraceExporter(hasTimeout ? {} : { timeoutMillis: EXPORT_MS_MAX });
    const named = resourceFromAttributes({ 'service.name': service, 'service.version': VERSION });
    this.#provider = new BasicTracerProvider({
      resource: named.merge(detectResources({ detectors: [envDetector] })),
      spanProcessors: [new BatchSpanProcessor(new WatchedExporter(exporter, log))],
      ...(!hasSampler && {
        sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(RATIO_DEFAULT) }),
      }),
    });
    diag.disable();
    this.#tracer = this.#provider.getTracer('sluice', VERSION);
  }

  request(name: string, carrier: Carrier): Span | undefined {
    if (!this.#hasRoom()) return undefined;
    const span = this.#begin(name, { kind: SpanKind.SERVER }, parentOf(carrier) ?? ROOT_CONTEXT);
    if (span) this.#begun++;
    return span;
  }

  resume(name: Step, traceparent: string, facts: Facts): Span | undefined {
    const parent = parentOf({ traceparent, tracestate: '' });
    return parent && this.#begin(name, { kind: KIND_OF_STEP[name], attributes: facts }, parent);
  }

  async close(): Promise<void> {
    const sent = this.#provider.shutdown().catch(() => undefined);
    await orLate(sent, EXPORT_MS_MAX, undefined);
  }

  #begin(name: string, options: SpanOptions, parent: Context): Span | undefined {
    const now = traceClock();
    const span = this.#tracer.startSpan(name, { ...options, startTime: now() }, parent);
    return span.isRecording() ? new SampledSpan(this.#tracer, span, now) : undefined;
  }

  #hasRoom(): boolean {
    const second = Math.floor(performance.now() / 1000);
    if (second !== this.#second) this.#begun = 0;
    this.#second = second;
    return this.#begun < TRACES_PER_SEC_MAX;
  }
}
