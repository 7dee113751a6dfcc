import type { Span, Tracing } from '../lib/tracing/tracing.ts';
import { readTrace } from '../stream/frame.ts';
import type { Delivery } from './delivery.ts';
import { FrameWriter, type FrameWriterOptions, type WriteReport } from './frame-writer.ts';

/**
 * A writer that tells of the sampled entries in its frames: a span for each attempt, until the
 * frame is acknowledged.
 */
export class TracedFrameWriter extends FrameWriter {
  readonly #tracing: Tracing;

  constructor(options: FrameWriterOptions, tracing: Tracing) {
    super(options);
    this.#tracing = tracing;
  }

  override async write(deliveries: readonly Delivery[], report: WriteReport): Promise<void> {
    const begun = new Map<Delivery, Span[]>();
    for (const delivery of deliveries)
      if (delivery.traces.length > 0) begun.set(delivery, this.#begin(delivery));
    if (begun.size === 0) return super.write(deliveries, report);
    const take = (frames: readonly Delivery[]): Span[] => {
      const spans = frames.flatMap((frame) => begun.get(frame) ?? []);
      for (const frame of frames) begun.delete(frame);
      return spans;
    };
    const { done, deferred } = report;
    const traced: WriteReport = {
      ...report,
      done: (stored) => {
        for (const span of take(stored)) span.end();
        done(stored);
      },
    };
    if (deferred)
      traced.deferred = (frames, acknowledged) => {
        const spans = take(frames);
        void acknowledged.then(() => {
          for (const span of spans) span.end();
        });
        deferred(frames, acknowledged);
      };
    try {
      await super.write(deliveries, traced);
    } catch (error) {
      for (const span of take(deliveries)) span.end({}, (error as Error).message);
      throw error;
    }
  }

  #begin({ traces, stream, frameId, count }: Delivery): Span[] {
    const spans: Span[] = [];
    for (const line of traces) {
      const { place, traceparent } = readTrace(line);
      const span = this.#tracing.resume('process', traceparent, {
        'messaging.destination.name': stream,
        'messaging.message.id': frameId,
        'sluice.entry': place,
        'sluice.delivery': count,
      });
      if (span) spans.push(span);
    }
    return spans;
  }
}
