/** Tracing as the stages see it. Where tracing is off they have none (open.ts). */

/** Settings of the SDK that an operator has set; each other one has a default of ours. */
export type TracingSettings = { hasSampler: boolean; hasTimeout: boolean };

/** Undefined: off. The SDK reads by itself what else the environment says of it. */
export function tracingSettings(
  env: Readonly<Record<string, string | undefined>>,
): TracingSettings | undefined {
  const isOn = env.OTEL_EXPORTER_OTLP_ENDPOINT || env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT;
  if (!isOn || env.OTEL_SDK_DISABLED === 'true' || env.OTEL_TRACES_EXPORTER === 'none') return undefined;
  const timeout = env.OTEL_EXPORTER_OTLP_TIMEOUT || env.OTEL_EXPORTER_OTLP_TRACES_TIMEOUT;
  return { hasSampler: Boolean(env.OTEL_TRACES_SAMPLER), hasTimeout: Boolean(timeout) };
}

/** The steps of a request that have a span each. */
export type Step = 'receive' | 'admit' | 'publish' | 'process';

export type Facts = Readonly<Record<string, string | number | undefined>>;

/** A span of a sampled trace that has begun. */
export interface Span {
  /** W3C: what carries the trace on, to where a further span goes below this one. */
  readonly traceparent: string;
  /** Begins a span below this one. */
  step(name: Step): Span;
  /** Only the first call counts. `failure`: what went wrong. */
  end(facts?: Facts, failure?: string): void;
}

/** Headers of W3C Trace Context; '' where there is none. */
export type Carrier = { traceparent: string; tracestate: string };

export interface Tracing {
  /** Begins the span of a request; undefined: it is not sampled. */
  request(name: string, carrier: Carrier): Span | undefined;
  /** Begins a span below the one that `traceparent` names; undefined: it is not sampled. */
  resume(name: Step, traceparent: string, facts: Facts): Span | undefined;
  /** Sends what has ended; waits for a few seconds at most. Never rejects. */
  close(): Promise<void>;
}
