/** Decodes a recording as the processor does, scrubbed; prints what that took as JSON. Argument: a unit of JSON, how many MiB of it, and what stands before and behind all. */
import { gzipSync } from 'node:zlib';
import { Slices } from '../../../dist/lib/slices.js';
import { EnvelopeDecoder } from '../../../dist/processor/decode/decode.js';

const { before = '', unit, behind = '', mib } = JSON.parse(process.argv[2]);
const MIB = 1024 * 1024;

function recording() {
  const units = Buffer.alloc(Math.floor((mib * MIB) / unit.length) * unit.length, unit);
  return gzipSync(Buffer.concat([Buffer.from(`[${before}`), units, Buffer.from(`${behind}1]`)]), {
    level: 1,
  });
}

const payload = Buffer.concat([Buffer.from('{"segment_id":0}\n'), recording()]);
const item = {
  type: 'replay_recording',
  index: 0,
  header: Buffer.from('{}'),
  length: payload.length,
  payload,
};
const entry = {
  kind: 'envelope',
  projectId: '7',
  eventId: '0'.repeat(32),
  receivedAt: 1,
  items: [item],
  privacy: { scrub: ['keys', 'emails', 'cards', 'ips', 'user-ip'], names: [] },
};
// By this clock each look takes a millisecond: slices have as many steps on every machine.
let looks = 0;
class CountedSlices extends Slices {
  count = 0;

  turn() {
    this.count++;
    return super.turn();
  }
}
const slices = new CountedSlices(() => looks++);
const decoded = await new EnvelopeDecoder(entry, { slices }).decode(item);
const text = decoded.ok
  ? Buffer.from(decoded.record.json.buffer, 0, decoded.record.json.length)
  : Buffer.alloc(0);
const { maxRSS } = process.resourceUsage();
console.log(
  JSON.stringify({
    isStored: decoded.ok,
    bytes: text.length,
    holds: ['b.cc', '"token":1'].filter((secret) => text.includes(secret)),
    slices: slices.count,
    mib: Math.round(maxRSS / 1024),
  }),
);
