import type { Span, Tracing } from '../lib/tracing/tracing.ts';
import { readTrace } from '../stream/frame.ts';
import type { Delivery } from './delivery.ts';
import { FrameWriter, type FrameWriterOptions, type WriteReport } from './frame-writer.ts';

/**
 * A writer that traces the sampled entries in its frames. Each attempt at an entry is a span, which
 * ends when the frame is acknowledged or the attempt fails.
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
    const end = (frames: readonly Delivery[], error?: string): void => {
      for (const frame of frames) {
        for (const span of begun.get(frame) ?? []) span.end({}, error);
        begun.delete(frame);
      }
    };
    const held = new Set<Delivery>();
    const traced: WriteReport = {
      ...report,
      done: (frames) => {
        end(frames);
        report.done(frames);
      },
      held: (frames) => {
        for (const frame of frames) held.add(frame);
        report.held?.(frames);
      },
    };
    try {
      await super.write(deliveries, traced);
    } catch (error) {
      end(
        deliveries.filter((frame) => !held.has(frame)),
        (error as Error).message,
      );
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
