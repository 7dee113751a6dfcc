/**
 * Facts about OTLP requests that ingest and the processor share: the encodings, the lists around
 * the records, and the header of the item that carries a request.
 */
import type { OtlpType } from './item-types.ts';

/** Encoding of a request, and of its answer. */
export type OtlpForm = 'protobuf' | 'json';

export const OTLP_CONTENT_TYPES = {
  protobuf: 'application/x-protobuf',
  json: 'application/json',
} as const satisfies Record<OtlpForm, string>;

/** JSON names of the three nested lists: resources, their scopes, and the scopes' records. */
export type ListNames = readonly [resources: string, scopes: string, records: string];

export const OTLP_LISTS: Readonly<Record<OtlpType, ListNames>> = {
  otlp_traces: ['resourceSpans', 'scopeSpans', 'spans'],
  otlp_logs: ['resourceLogs', 'scopeLogs', 'logRecords'],
  otlp_metrics: ['resourceMetrics', 'scopeMetrics', 'metrics'],
};

/** Returns the header of a request's item. Clients cannot send such a header in an envelope. */
export const otlpHeader = (type: OtlpType, form: OtlpForm): string =>
  JSON.stringify({ type, content_type: OTLP_CONTENT_TYPES[form] });

const FORMS: ReadonlyMap<string, OtlpForm> = new Map(
  (Object.keys(OTLP_LISTS) as OtlpType[]).flatMap((type) =>
    (Object.keys(OTLP_CONTENT_TYPES) as OtlpForm[]).map((form) => [otlpHeader(type, form), form]),
  ),
);

/** Returns the encoding that an item's header names; undefined if otlpHeader did not make it. */
export const otlpFormOf = (header: string): OtlpForm | undefined => FORMS.get(header);
