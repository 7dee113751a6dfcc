import { describe, expect, test } from 'vitest';
import { parseEnvelopeHeader } from '../../../src/ingest/envelope/header.ts';
import { bytesOf, EVENT_ID } from './bodies.ts';

const envelope = (header: string): unknown => parseEnvelopeHeader(bytesOf(header));
const WRONG_ID = 'the event_id is neither 32 hex digits nor a dashed UUID';

describe('an envelope header', () => {
  test.each([
    [EVENT_ID],
    [EVENT_ID.toUpperCase()],
    ['9ec79c33-ec99-42ab-8353-589fcb2e04dc'],
    ['9EC79C33-EC99-42AB-8353-589fcb2e04dc'],
  ])('takes the event_id %s as 32 lower-case hex digits', (id) => {
    expect(envelope(JSON.stringify({ event_id: id }))).toEqual({ eventId: EVENT_ID });
  });

  test.each([
    '',
    '42',
    EVENT_ID.slice(1),
    `${EVENT_ID}0`,
    `${EVENT_ID}\n`,
    ` ${EVENT_ID}`,
    `${EVENT_ID.slice(1)}g`,
    '9ec79c33ec99-42ab-8353-589fcb2e04dc',
    '9ec79c33-ec9942ab-8353-589fcb2e04dc-',
    '{9ec79c33-ec99-42ab-8353-589fcb2e04dc}',
    42,
    true,
    [EVENT_ID],
    { id: EVENT_ID },
  ])('refuses the event_id %j', (id) => {
    expect(envelope(JSON.stringify({ event_id: id }))).toBe(WRONG_ID);
  });

  test('without an event_id has none', () => {
    expect(envelope('{"dsn":"https://k@host/1","trace":{"x":1}}')).toEqual({});
  });

  test.each([null, '0'.repeat(32), '00000000-0000-0000-0000-000000000000'])(
    'with the event_id %j has none: many clients write it where they have no id',
    (id) => expect(envelope(JSON.stringify({ event_id: id }))).toEqual({}),
  );

  test.each([
    ['"2026-01-01T00:00:00Z"', { sentAt: '2026-01-01T00:00:00Z' }],
    ['1767225600', { sentAt: '1767225600' }],
    ['1767225600.25', { sentAt: '1767225600.25' }],
    ['null', {}],
    ['[1]', {}],
  ])('keeps the sent_at %s when it is a string or a number', (sentAt, expected) => {
    expect(envelope(`{"sent_at":${sentAt}}`)).toEqual(expected);
  });

  test.each([
    ['{"name":"sentry.python","version":"2.1"}', { sdk: 'sentry.python/2.1' }],
    ['{"name":"sentry.python"}', {}],
    ['{"name":1,"version":"2.1"}', {}],
    ['{"name":"","version":""}', {}],
    ['{"name":"","version":"2.1"}', {}],
    ['{"name":"sentry.python","version":""}', {}],
    ['"sentry.python/2.1"', {}],
    ['null', {}],
    ['[]', {}],
  ])('reads the sdk %s', (sdk, expected) => {
    expect(envelope(`{"sdk":${sdk}}`)).toEqual(expected);
  });

  test('takes no sdk that is longer than any, since it is stored with each item', () => {
    const sdkOf = (length: number): object =>
      envelope(JSON.stringify({ sdk: { name: 'n'.repeat(length - 2), version: '1' } })) as object;
    expect(sdkOf(256)).toHaveProperty('sdk');
    expect(sdkOf(257)).toEqual({});
  });
});
