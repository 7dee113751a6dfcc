/**
 * Spans to a collector, by the SDK of OpenTelemetry. Only this file imports the SDK, and it is
 * loaded only when tracing is on.
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

/** Share of the requests whose client says nothing of traces; the SDK's own default is all. */
const RATIO_DEFAULT = 0.01;
/**
 * Traces that one worker begins in a second: a client that marks each of its requests as sampled
 * must not slow down the others.
 */
export const TRACES_PER_SEC_MAX = 100;
/** A collector that does not answer in this time is away; the end of a process waits as long. */
const EXPORT_MS_MAX = 3_000;

const KIND_OF_STEP: Readonly<Record<Step, SpanKind>> = {
  receive: SpanKind.INTERNAL,
  admit: SpanKind.CLIENT,
  publish: SpanKind.PRODUCER,
  process: SpanKind.CONSUMER,
};

export type OtlpOptions = TracingSettings & { service: string; log: Log };

/** Undefined: there is no parent, or none that can be read. */
function parentOf({ traceparent, tracestate }: Carrier): Context | undefined {
  const parent = traceparent === '' ? null : parseTraceParent(traceparent);
  if (!parent) return undefined;
  const traceState = tracestate === '' ? undefined : createTraceState(tracestate);
  return trace.setSpanContext(ROOT_CONTEXT, { ...parent, isRemote: true, ...(traceState && { traceState }) });
}

/**
 * Unix ms for the spans of one request. The SDK reads the wall clock for each span anew, in whole
 * milliseconds, and then a step can end after the request that it is a part of.
 */
function traceClock(): () => number {
  const aheadMs = systemClock.now() - systemClock.monotonic();
  return () => aheadMs + systemClock.monotonic();
}

class SampledSpan implements Span {
  readonly #tracer: Tracer;
  readonly #span: OtelSpan;
  readonly #now: () => number;

  /** @param now the clock by which the span began */
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

/** Says once that the collector takes nothing, and once that it takes spans again. */
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
 * The SDK holds spans that have ended, 2,048 at most unless OTEL_BSP_MAX_QUEUE_SIZE says otherwise,
 * and sends them by itself. While the collector is away it drops what does not fit.
 */
export class OtlpTracing implements Tracing {
  readonly #provider: BasicTracerProvider;
  readonly #tracer: Tracer;
  #second = 0;
  #begun = 0;

  constructor({ service, log, hasSampler, hasTimeout }: OtlpOptions) {
    // The SDK says here what is wrong with its settings, and later of each export that failed.
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
