/**
 * The story of one ingest request, top to bottom (spec 4.1, contract part 2):
 * authenticate → take a rate token → parse the body as it arrives → filter → count the quota → publish → answer.
 * It ends in exactly one outcome. Each step runs only if the one before passed; everything else is a part that it calls. One short cut: a
 * body that is whole and passed the filters while the token is asked for is counted by the same call.
 */
import type { HeldEnvelope, HeldItem, SkippedItems, UploadResult } from '../envelope/upload.ts';
import { Upload } from '../envelope/upload.ts';
import { type InboundFilter, needsPayload, siftItems, siftSpooled } from '../filter/inbound.ts';
import type { QuotaDecision, QuotaSubject } from '../limit/quota-counter.ts';
import type { RateDecision, TokenWaiter } from '../limit/rate-limiter.ts';
import { ANSWER_MS_MAX } from '../limits.ts';
import type { EnvelopeEntry } from '../stream/frame.ts';
import type { PublishResult } from '../stream/publisher.ts';
import { Credentials } from './auth.ts';
import { EndpointRequest } from './endpoint-request.ts';
import type { Exchange } from './exchange.ts';
import { type Answer, headerLines, type Outcome, REFUSALS } from './outcome.ts';
import type { FinishedRequest, RequestParts } from './parts.ts';
import { isLimited, type ProjectGate } from './project-gate.ts';
import { RATE_HINT } from './rate-hints.ts';
import { NO_FACTS, type RequestHead, readFacts } from './request-head.ts';
import { quotaHeaders, rateHeaders } from './usage-headers.ts';

const NO_ITEMS: HeldItem[] = [];

export class IngestRequest extends EndpointRequest implements TokenWaiter {
  #gate: ProjectGate | undefined;
  #facts = NO_FACTS;
  #credentials: Credentials | undefined;
  /** Set when the limiter has decided, or was not to be asked. */
  #admitted = false;
  /** Header lines. */
  #rateHeaders = '';
  #usageHeaders = '';
  #upload: Upload | undefined;
  #uploaded: UploadResult | undefined;
  /** The items to be stored; set with `#counting`. */
  #kept: HeldItem[] = NO_ITEMS;
  /** It has been left to the limiter or the counter to count it. */
  #counting = false;
  #counted: { month: string; position: number } | undefined;
  #eventId = '';
  /** Monotonic ms; set with the last body byte. */
  #deadline = 0;

  constructor(parts: RequestParts, exchange: Exchange) {
    super(parts, exchange, 'ingest');
  }

  start(head: RequestHead): void {
    this.guard(() => {
      if (!this.#authenticate(head)) return;
      if (!this.parts.publisher.available || !this.parts.budget.hasRoom) return this.#refuse('overloaded');
      this.#takeToken();
      // A flood over the limit is refused from memory: nothing is made ready for its bodies.
      if (this.finished) return;
      this.#openBody(head);
      this.#proceed();
    });
  }

  #authenticate(head: RequestHead): boolean {
    this.#credentials = new Credentials(head);
    const { key } = this.#credentials;
    const gate = key === '' ? undefined : this.parts.replica.findProject(head.getParameter(0));
    if (gate && gate.key === key) {
      this.#gate = gate;
      return true;
    }
    this.#refuse(key === '' ? 'unauthenticated' : 'forbidden_key');
    return false;
  }

  /** Reads what is needed of the head before it dies, and lets the body flow: it is parsed while Redis is asked for a token. */
  #openBody(head: RequestHead): void {
    const gate = this.#gate as ProjectGate;
    if (gate.readsHead) this.#facts = readFacts(head);
    this.#credentials?.keepAgent(head);
    if (Number(head.getHeader('content-length')) > this.parts.maxBodyBytes) {
      this.#uploaded = {
        ok: false,
        failure: { kind: 'too_large', detail: 'Content-Length over the bound' },
      };
      return;
    }
    this.#upload = new Upload({
      encoding: head.getHeader('content-encoding'),
      budget: this.parts.budget,
      onResult: (result) => {
        this.#uploaded = result;
        this.guard(() => this.#proceed());
      },
      onPressure: (paused) => this.exchange.setPaused(paused),
    });
    this.exchange.read(this);
  }

  #takeToken(): void {
    const gate = this.#gate as ProjectGate;
    if (!isLimited(gate)) {
      this.#admitted = true;
      return this.#proceed();
    }
    const decision = this.parts.rateLimiter.take(gate, this);
    if (decision) this.#decided(decision);
  }

  counts(): QuotaSubject | undefined {
    let subject: QuotaSubject | undefined;
    this.guard(() => {
      if (this.finished || !this.#uploaded?.ok) return;
      const { envelope } = this.#uploaded;
      if (envelope.items.length === 0 || this.#isReadBack(envelope)) return;
      const kept = this.#sift(envelope);
      if (typeof kept !== 'string') subject = this.#beginCount(kept);
    });
    return subject;
  }

  decided(decision: RateDecision): void {
    this.guard(() => this.#decided(decision));
  }

  #decided(decision: RateDecision): void {
    if (this.finished) return;
    if (decision.kind === 'unavailable') {
      if (this.parts.whileAway.rateToken === 'refuse') {
        this.#rateHeaders = rateHeaders.unavailable(this.parts.clock.now());
        return this.#refuse('limiter_unavailable');
      }
      this.parts.log.warn(
        { project: this.#gate?.id },
        'rate limiter unavailable: let through in development',
      );
    } else {
      this.#rateHeaders = rateHeaders.of(decision, this.parts.clock);
      if (decision.kind === 'refused') return this.#refuse('rate_limited');
    }
    this.#admitted = true;
    this.#proceed();
  }

  feed(chunk: Uint8Array): void {
    this.guard(() => this.#upload?.feed(chunk));
  }

  override crumbled(): void {
    this.#upload?.dispose();
    this.#uploaded = { ok: false, failure: { kind: 'invalid', detail: 'a body of crumbs' } };
    this.guard(() => this.#proceed());
  }

  end(): void {
    this.#deadline = this.parts.clock.monotonic() + ANSWER_MS_MAX;
    this.guard(() => this.#upload?.end());
    const uploaded = this.#uploaded;
    // Neither disk nor decoders have a time-out of their own.
    if (!uploaded || (uploaded.ok && uploaded.envelope.spool))
      this.failAfter(ANSWER_MS_MAX, 'not decoded and spooled before the deadline');
  }

  /** Both the token and the parsed body are there: on with it. */
  #proceed(): void {
    if (!this.#admitted || !this.#uploaded || this.finished) return;
    if (!this.#uploaded.ok) {
      const { kind, detail } = this.#uploaded.failure;
      this.parts.log.debug({ project: this.#gate?.id, kind, detail }, 'body refused');
      return this.#refuse(kind);
    }
    const envelope = this.#uploaded.envelope;
    this.#eventId = envelope.eventId;
    if (!this.#counting) this.#filter(envelope);
  }

  #filter(envelope: HeldEnvelope): void {
    if (!this.#isReadBack(envelope)) return this.#filtered(this.#sift(envelope));
    const { filters } = this.#gate as ProjectGate;
    const read = (item: HeldItem): Promise<Uint8Array> => this.parts.readSpooled(envelope, item);
    siftSpooled(filters, this.#facts, { items: envelope.items, read }).then(
      (kept) => this.guard(() => this.#filtered(kept)),
      (cause) => this.fail('the spool could not be read', cause),
    );
  }

  /** Whether the filters need payloads that are in a file. */
  #isReadBack({ spool, items }: HeldEnvelope): boolean {
    return spool !== undefined && needsPayload((this.#gate as ProjectGate).filters, items);
  }

  #sift({ items }: HeldEnvelope): HeldItem[] | InboundFilter {
    return siftItems((this.#gate as ProjectGate).filters, this.#facts, items);
  }

  /** @param kept the items that the filters left, or the filter that left none */
  #filtered(kept: HeldItem[] | InboundFilter): void {
    if (this.finished) return;
    if (typeof kept === 'string')
      return this.#succeed('filtered', headerLines([['X-Service-Filtered', kept]]));
    // Nothing to store: neither counted nor queued (contract part 2, Accepted).
    if (kept.length === 0) return this.#succeed('empty', '');
    this.parts.quota.count(this.#beginCount(kept), this);
  }

  #beginCount(kept: HeldItem[]): QuotaSubject {
    this.committed = true;
    this.#counting = true;
    this.#kept = kept;
    return this.#gate as ProjectGate;
  }

  counted(decision: QuotaDecision): void {
    this.guard(() => this.#quotaDecided(decision));
  }

  #quotaDecided(decision: QuotaDecision): void {
    // The token came too late to be used, and what rode on its call was counted.
    if (this.finished) return decision.kind === 'counted' ? this.#refund(decision) : undefined;
    if (decision.kind === 'unavailable') {
      if (this.parts.whileAway.quota === 'fail') return this.fail('the quota could not be counted');
      this.parts.log.warn({ project: this.#gate?.id }, 'quota not counted: let through in development');
    } else {
      const { quota } = this.#gate as ProjectGate;
      const current = decision.kind === 'counted' ? decision.position : decision.current;
      this.#usageHeaders = quotaHeaders(current, quota);
      if (decision.kind === 'exceeded') return this.#refuse('quota_exceeded');
      this.#counted = { month: decision.month, position: decision.position };
    }
    this.#publish(this.#envelope);
  }

  /** Of a body that was parsed. */
  get #envelope(): HeldEnvelope {
    return (this.#uploaded as Extract<UploadResult, { ok: true }>).envelope;
  }

  #publish(envelope: HeldEnvelope): void {
    this.stopTimer(); // the publisher has a deadline
    const entry: EnvelopeEntry = {
      kind: 'envelope',
      projectId: (this.#gate as ProjectGate).id,
      eventId: envelope.eventId,
      receivedAt: this.parts.clock.now(),
      sentAt: envelope.sentAt,
      sdk: envelope.sdk ?? this.#credentials?.client,
      month: this.#counted?.month,
      position: this.#counted?.position,
      items: this.#kept,
    };
    const source = envelope.spool?.only(envelope.items, this.#kept);
    this.parts.publisher.publish(entry, { deadline: this.#deadline, source }, (result) =>
      this.guard(() => this.#published(result)),
    );
  }

  #published(result: PublishResult): void {
    if (result === 'stored') {
      for (const item of this.#kept) this.parts.metrics.items[item.type]++;
      return this.#succeed('accepted', '');
    }
    if (result === 'unknown') return this.fail('no acknowledgement from the stream before the deadline');
    if (this.#counted) this.#refund(this.#counted);
    this.#refuse('overloaded');
  }

  /** Only for what is definitely not queued. */
  #refund({ month }: { month: string }): void {
    this.parts.quota.refund((this.#gate as ProjectGate).id, month);
  }

  #succeed(outcome: 'accepted' | 'empty' | 'filtered', headers: string): void {
    const { skipped } = this.#envelope;
    this.finish(outcome, {
      status: '200 OK',
      headers: skipped.size === 0 ? headers : headers + this.#noteSkipped(skipped),
      body: `{"id":"${this.#eventId}"}`,
    });
  }

  /** @returns the header line that tells the client to stop sending such items */
  #noteSkipped(skipped: SkippedItems): string {
    for (const [type, count] of skipped) this.parts.metrics.skipped[type] += count;
    const hint = this.parts.rateHint(skipped.keys());
    return hint ? headerLines([[RATE_HINT, hint]]) : '';
  }

  #refuse(outcome: keyof typeof REFUSALS): void {
    this.finish(outcome, REFUSALS[outcome]);
  }

  protected override trace(): FinishedRequest {
    return { exchange: this.exchange, project: this.#gate, counted: this.#counted };
  }

  protected override finish(outcome: Outcome, answer?: Answer): void {
    if (this.finished) return;
    this.#upload?.dispose();
    const usage = outcome === 'accepted' || outcome === 'quota_exceeded' ? this.#usageHeaders : '';
    if (!answer) return super.finish(outcome);
    const { status, headers, body } = answer;
    super.finish(outcome, { status, headers: this.#rateHeaders + usage + headers, body });
  }
}
