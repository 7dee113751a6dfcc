/** Tracing as the stages see it. Where tracing is off, they have no Tracing object (open.ts). */

/** Whether the operator has set the SDK's sampler and time-out. If not, sluice sets its own. */
export type TracingSettings = { hasSampler: boolean; hasTimeout: boolean };

/** Reads from the environment whether tracing is on; undefined means off. */
export function tracingSettings(
  env: Readonly<Record<string, string | undefined>>,
): TracingSettings | undefined {
  const isOn = env.OTEL_EXPORTER_OTLP_ENDPOINT || env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT;
  if (!isOn || env.OTEL_SDK_DISABLED === 'true' || env.OTEL_TRACES_EXPORTER === 'none') return undefined;
  const timeout = env.OTEL_EXPORTER_OTLP_TIMEOUT || env.OTEL_EXPORTER_OTLP_TRACES_TIMEOUT;
  return { hasSampler: Boolean(env.OTEL_TRACES_SAMPLER), hasTimeout: Boolean(timeout) };
}

/** Steps of a request, each with a span of its own. */
export type Step = 'receive' | 'admit' | 'publish' | 'process';

export type Facts = Readonly<Record<string, string | number | undefined>>;

/** A span that has begun, in a trace that is sampled. */
export interface Span {
  /** Header of W3C Trace Context that names this span, for spans that another process begins. */
  readonly traceparent: string;
  /** Begins a span below this one. */
  step(name: Step): Span;
  /** Ends the span; only the first call counts. `failure` says what went wrong. */
  end(facts?: Facts, failure?: string): void;
}

/** The headers of W3C Trace Context; '' where a header is missing. */
export type Carrier = { traceparent: string; tracestate: string };

export interface Tracing {
  /** Begins the span of a request; returns undefined when the request is not sampled. */
  request(name: string, carrier: Carrier): Span | undefined;
  /** Begins a span below that of `traceparent`; undefined when that span is not sampled. */
  resume(name: Step, traceparent: string, facts: Facts): Span | undefined;
  /** Sends the spans that have ended, for a few seconds at most. Never rejects. */
  close(): Promise<void>;
}
