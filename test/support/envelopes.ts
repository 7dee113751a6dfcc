import { randomUUID } from 'node:crypto';

/** 32 lower-case hex. */
export const eventId = (): string => randomUUID().replaceAll('-', '');

/** An envelope of one item without `length`, as browsers send it. */
export function envelope(id: string, type: string, payload: unknown, header: object = {}): string {
  return `${JSON.stringify({ event_id: id, ...header })}\n${JSON.stringify({ type })}\n${JSON.stringify(payload)}`;
}

/** An error event that no filter minds. */
export const errorEvent = (id: string, message = 'it broke'): string =>
  envelope(id, 'event', {
    event_id: id,
    timestamp: 1_790_000_000,
    exception: { values: [{ type: 'Error', value: message }] },
  });
