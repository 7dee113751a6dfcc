/**
 * Notices that Redis's clock stepped forward, so that bookings left their window early.
 *
 * Redis read its clock between the sending of a call and its reply. So its lead over our own clock,
 * which never steps, lies between two figures. When the lower one is more than 250 ms above the
 * upper one of the reply before, the clock has stepped. What a reply takes (at most 700 ms) hides
 * smaller steps, and a clock that is slewed drifts by less than that from one reply to the next.
 */
import { RATE_BUCKET_MS } from '../../limits.ts';

/** Memory of a server's clock from one reply to the next. */
export type ClockLead = {
  /**
   * Most by which it was ahead of ours, ms; infinite before the first reply, which cannot have
   * stepped.
   */
  leadMost: number;
};

/**
 * Remembers by how much the clock was ahead in this reply.
 * @returns whether it has stepped forward since the reply before
 * @param redisNow Unix ms that Redis said
 * @param sentAt @param repliedAt of that call, monotonic ms
 */
export function noteClock(
  of: ClockLead,
  { redisNow, sentAt, repliedAt }: { redisNow: number; sentAt: number; repliedAt: number },
): boolean {
  const before = of.leadMost;
  of.leadMost = redisNow - sentAt;
  return redisNow - repliedAt > before + RATE_BUCKET_MS;
}
