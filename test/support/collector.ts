/** A collector of OTLP over HTTP, as tracing backends have one: takes spans as JSON and keeps them. */
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

export type SeenSpan = {
  service: string;
  name: string;
  traceId: string;
  spanId: string;
  parentSpanId: string;
  /** OTLP's numbers: 1 internal, 2 server, 4 producer, 5 consumer. */
  kind: number;
  startMs: number;
  endMs: number;
  isError: boolean;
  attributes: Record<string, unknown>;
};

type Value = { stringValue?: string; intValue?: number; boolValue?: boolean };
type Attribute = { key: string; value: Value };
type OtlpSpan = Omit<SeenSpan, 'service' | 'startMs' | 'endMs' | 'attributes' | 'isError'> & {
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  status: { code: number };
  attributes: Attribute[];
};
type Request = {
  resourceSpans: { resource: { attributes: Attribute[] }; scopeSpans: { spans: OtlpSpan[] }[] }[];
};

const attributesOf = (list: readonly Attribute[]): Record<string, unknown> =>
  Object.fromEntries(list.map(({ key, value }) => [key, Object.values(value)[0]]));

function spansOf({ resourceSpans }: Request): SeenSpan[] {
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans
      .flatMap(({ spans }) => spans)
      .map(({ startTimeUnixNano, endTimeUnixNano, status, attributes, ...span }) => ({
        ...span,
        parentSpanId: span.parentSpanId ?? '',
        service: `${attributesOf(resource.attributes)['service.name']}`,
        startMs: Number(startTimeUnixNano) / 1e6,
        endMs: Number(endTimeUnixNano) / 1e6,
        isError: status.code === 2,
        attributes: attributesOf(attributes),
      })),
  );
}

export class Collector {
  readonly #server: Server;
  readonly spans: SeenSpan[] = [];
  readonly requests: { url: string; headers: IncomingHttpHeaders }[] = [];
  /** Answers nothing until it resolves. */
  hold: Promise<void> = Promise.resolve();

  private constructor() {
    this.#server = createServer((req, res) => {
      const pieces: Buffer[] = [];
      req.on('data', (piece: Buffer) => pieces.push(piece));
      req.on('end', async () => {
        this.requests.push({ url: req.url ?? '', headers: req.headers });
        await this.hold;
        this.spans.push(...spansOf(JSON.parse(Buffer.concat(pieces).toString()) as Request));
        res.setHeader('Content-Type', 'application/json').end('{}');
      });
    });
  }

  static async start(port = 0): Promise<Collector> {
    const collector = new Collector();
    await new Promise<void>((resolve, reject) => {
      collector.#server.once('error', reject).listen(port, '127.0.0.1', resolve);
    });
    return collector;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  of(traceId: string): SeenSpan[] {
    return this.spans.filter((span) => span.traceId === traceId);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
