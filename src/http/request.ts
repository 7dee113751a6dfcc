/**
 * The story of one ingest request, top to bottom (spec 4.1, contract part 2): authenticate → known
 * refusal → body → filter → one admission (token and position) → publish → answer. It ends in
 * exactly one outcome. Each step runs only if the one before passed, but a body that is refused, or
 * that holds nothing to store, still takes a token: what the limit says comes first.
 */
import type { HeldEnvelope, HeldItem, SkippedItems, UploadResult } from '../envelope/upload.ts';
import { Upload } from '../envelope/upload.ts';
import {
  type InboundFilter,
  needsPayload,
  type RequestFacts,
  siftItems,
  siftSpooled,
} from '../filter/inbound.ts';
import { type Category, categoriesIn, typeBit } from '../lib/item-types.ts';
import type { CountDecision, RateDecision } from '../limit/admission.ts';
import { ANSWER_MS_MAX } from '../limits.ts';
import type { Access, ProjectState, Subject } from '../projects/project-state.ts';
import type { EnvelopeEntry, Privacy } from '../stream/frame.ts';
import type { PublishResult } from '../stream/publish/publisher.ts';
import { type Answer, headerLines, type Outcome, REFUSALS } from './answers/outcome.ts';
import { RATE_HINT } from './answers/rate-hints.ts';
import { categoryHints, quotaHeaders, rateHeaders } from './answers/usage-headers.ts';
import { Credentials } from './auth.ts';
import { EndpointRequest } from './endpoint-request.ts';
import type { Exchange } from './exchange.ts';
import type { FinishedRequest, RequestParts } from './parts.ts';
import { type RequestHead, readFacts } from './request-head.ts';

const NO_ITEMS: HeldItem[] = [];

/** A body may take long, and the record change meanwhile: what the key may is looked up anew. */
type Sender = { project: ProjectState; key: string };
type RefusedRate = Extract<RateDecision, { kind: 'refused' }>;

/** 0: none, or more than categories. */
const refusingCategories = (asked: Subject, rate: RateDecision | undefined): number =>
  rate?.kind === 'refused' ? asked.refusingCategories(rate.full) : 0;
/** The windows of categories have no X-RateLimit headers: only a refusal counts. */
const unlessAdmitted = (rate: RateDecision | undefined): RateDecision | undefined =>
  rate?.kind === 'admitted' ? undefined : rate;

export class IngestRequest extends EndpointRequest {
  #access: Access | undefined;
  /** Header lines. */
  #rateHeaders = '';
  #usageHeaders = '';
  #upload: Upload | undefined;
  /** Undefined until the body was read, or refused. */
  #body: UploadResult | undefined;
  #bodyRead: ((result: UploadResult) => void) | undefined;
  /** Set when the token was asked for before the body went to disk. */
  #early: Promise<unknown> | undefined;
  #passedEarly = false;
  /** Categories that the early token is of, too. */
  #earlyCategories = 0;
  /** Categories over their limits, of which nothing is stored. */
  #dropped: { resetSec: number; categories: Category[] }[] | undefined;
  /** Known where the project wants it to be filled in. */
  #clientAddress: string | undefined;
  #counted: { month: string; position: number } | undefined;
  /** Monotonic ms; set with the last body byte. */
  #deadline = 0;

  constructor(parts: RequestParts, exchange: Exchange) {
    super(parts, exchange, 'ingest');
  }

  protected override async serve(head: RequestHead): Promise<void> {
    const credentials = new Credentials(head);
    const access = this.#authenticate(head, credentials.key);
    if (!access) return;
    const { project, subject } = access;
    const { publisher, budget, admission } = this.parts;
    const announced = Number(head.getHeader('content-length'));
    if (!publisher.takes(project.id, project.use, announced) || !budget.takes(project.use))
      return this.#refuse('overloaded');
    // A flood over the limit ends here: nothing is made ready for its bodies.
    if (!this.#accepts(admission.knownRefusal(subject))) return;

    const facts = readFacts(head, project.filters);
    if (project.privacy?.fillIp)
      this.#clientAddress = this.parts.trustedProxies?.clientOf(head, this.exchange.peer);
    credentials.keepAgent(head);
    const body = await this.#readBody(head, { project, key: credentials.key }, announced);
    const sifted = body.ok ? this.#filter(project, facts, body.envelope) : NO_ITEMS;
    // An await of its own costs each request, and few have payloads on the disk.
    const kept = sifted instanceof Promise ? await sifted : sifted;
    const isFiltered = typeof kept === 'string';
    const stored = await this.#admit({ project, key: credentials.key }, isFiltered ? NO_ITEMS : kept);
    if (!stored) return;

    if (!body.ok) return this.#refuseBody(body.failure);
    const { envelope } = body;
    if (isFiltered) return this.#succeed('filtered', envelope, headerLines([['X-Service-Filtered', kept]]));
    // Nothing to store: neither counted nor queued (contract part 2, Accepted).
    if (stored.length === 0) return this.#succeed('empty', envelope);
    envelope.sdk ??= credentials.client;
    this.#conclude(await this.#publish(project, envelope, stored), envelope, stored);
  }

  #authenticate(head: RequestHead, key: string): Access | undefined {
    const { clock, replica } = this.parts;
    const project = key === '' ? undefined : replica.findProject(head.getParameter(0));
    this.#access = project?.access(key, clock);
    if (this.#access) return this.#access;
    this.#refuse(key === '' ? 'unauthenticated' : 'forbidden_key');
    return undefined;
  }

  // ---- The body ----

  /** Never settles when the client goes away. */
  #readBody(head: RequestHead, who: Sender, announced: number): Promise<UploadResult> {
    const { maxBodyBytes, budget } = this.parts;
    budget.inflations.note(who.project.use, this.exchange.startedAt);
    return new Promise((resolve) => {
      if (announced > maxBodyBytes) {
        const failure = { kind: 'too_large', detail: 'Content-Length over the bound' } as const;
        return resolve({ ok: false, failure });
      }
      this.#bodyRead = (result) => {
        this.#body = result;
        resolve(result);
      };
      this.#upload = new Upload({
        encoding: head.getHeader('content-encoding'),
        budget,
        use: who.project.use,
        onResult: this.#bodyRead,
        onPressure: (paused) => this.exchange.setPaused(paused),
        beforeSpool: (spool, items) => this.#takeTokenFirst(who, { items, spool }),
      });
      this.exchange.read(this);
    });
  }

  feed(chunk: Uint8Array): void {
    this.guard(() => this.#upload?.feed(chunk));
  }

  end(): void {
    this.#deadline = this.parts.clock.monotonic() + ANSWER_MS_MAX;
    this.guard(() => this.#upload?.end());
    // Neither the disk nor the decoders have a time-out of their own.
    if (!this.#body || (this.#body.ok && this.#body.envelope.spool))
      this.runAfter(ANSWER_MS_MAX, () => this.#refuseUnqueued('not decoded and spooled before the deadline'));
  }

  override inTinyPieces(): void {
    this.#upload?.dispose();
    this.#bodyRead?.({ ok: false, failure: { kind: 'invalid', detail: 'a body of tiny pieces' } });
  }

  /**
   * No flood of uploads is written to disk only to be refused: a body that needs the disk takes its
   * token first. When only categories refuse what has come of it, more may follow that is stored:
   * it is asked for again in the end. A key that is no longer valid is refused then, too.
   */
  #takeTokenFirst(
    { project, key }: Sender,
    { items, spool }: { items: readonly HeldItem[]; spool(): void },
  ): void {
    const subject = project.access(key, this.parts.clock)?.subject ?? project;
    const categories = project.limitedIn(items);
    const asked = project.ofCategories(subject, categories, false);
    this.#early = this.parts.admission.admit(asked, { token: true, count: false }).then(({ rate }) => {
      if (refusingCategories(asked, rate) > 0) return spool();
      this.#passedEarly = this.#accepts(asked.hasOwnWindow ? rate : unlessAdmitted(rate));
      this.#earlyCategories = categories;
      if (this.#passedEarly) spool();
    });
    this.run(this.#early);
  }

  // ---- The filters ----

  /** The items that the filters keep, or the filter that left none. */
  #filter(
    { filters }: ProjectState,
    facts: RequestFacts,
    envelope: HeldEnvelope,
  ): HeldItem[] | InboundFilter | Promise<HeldItem[] | InboundFilter> {
    const { items, spool } = envelope;
    if (!spool || !needsPayload(filters, items)) return siftItems(filters, facts, items);
    const read = (item: HeldItem): Promise<Uint8Array> => this.parts.readSpooled(envelope, item);
    return siftSpooled(filters, facts, { items, read }).catch((error) => {
      // When the request has ended, its spool is closed.
      if (this.finished) return NO_ITEMS;
      throw error;
    });
  }

  // ---- The admission ----

  /**
   * @returns the items that are stored: those within the limits of their categories; undefined: the
   * request is finished
   */
  async #admit(who: Sender, kept: HeldItem[]): Promise<HeldItem[] | undefined> {
    if (this.#early) await this.#early;
    if (this.finished) return undefined;
    const { project, key } = who;
    const subject = project.access(key, this.parts.clock)?.subject;
    if (!subject) {
      this.#refuse('forbidden_key');
      return undefined;
    }
    // A client that leaves from now on changes nothing any more.
    if (kept.length > 0) this.committed = true;
    const categories = project.limitedIn(kept) & ~this.#earlyCategories;
    const asked = project.ofCategories(subject, categories, this.#passedEarly);
    const wanted = { token: !this.#passedEarly || categories > 0, count: kept.length > 0 };
    const { rate, count } = await this.parts.admission.admit(asked, wanted);
    if (this.finished && count?.kind === 'counted') this.parts.admission.refund(project, count.month);
    if (refusingCategories(asked, rate) > 0) {
      const rest = this.#drop(kept, asked, rate as RefusedRate);
      return rest.length > 0 ? this.#admit(who, rest) : undefined;
    }
    const told = asked.hasOwnWindow ? rate : unlessAdmitted(rate);
    return this.#accepts(told) && this.#acceptsCount(project, count) ? kept : undefined;
  }

  /** @returns what the categories that refuse leave; when that is nothing, it is the end. */
  #drop(items: readonly HeldItem[], asked: Subject, rate: RefusedRate): HeldItem[] {
    const bits = asked.refusingCategories(rate.full);
    const rest: HeldItem[] = [];
    for (const item of items)
      if ((typeBit(item.type) & bits) === 0) rest.push(item);
      else this.parts.metrics.rateLimited[item.type]++;
    this.#dropped ??= [];
    this.#dropped.push({ resetSec: rate.resetSec, categories: categoriesIn(bits) });
    if (rest.length > 0) return rest;
    this.#rateHeaders = rateHeaders.ofCategories(this.#dropped, this.parts.clock);
    this.#refuse('rate_limited');
    return rest;
  }

  /** @returns whether the request goes on; `rate` undefined: no token was asked for */
  #accepts(rate: RateDecision | undefined): boolean {
    if (this.finished) return false;
    if (!rate) return true;
    if (rate.kind !== 'unavailable') {
      this.#rateHeaders = rateHeaders.of(rate, this.parts.clock);
      if (rate.kind === 'refused') this.#refuse('rate_limited');
      return rate.kind === 'admitted';
    }
    if (this.parts.whileAway.rateToken === 'refuse') {
      this.#rateHeaders = rateHeaders.unavailable(this.parts.clock.now());
      this.#refuse('limiter_unavailable');
      return false;
    }
    this.parts.log.warn(
      { project: this.#access?.project.id, requestId: this.exchange.requestId || undefined },
      'rate limiter unavailable: let through in development',
    );
    return true;
  }

  #acceptsCount(project: ProjectState, count: CountDecision | undefined): boolean {
    if (!count) return true;
    if (count.kind === 'unavailable') {
      if (this.parts.whileAway.quota === 'fail') {
        this.fail('the quota could not be counted');
        return false;
      }
      this.parts.log.warn({ project: project.id }, 'quota not counted: let through in development');
      return true;
    }
    const current = count.kind === 'counted' ? count.position : count.current;
    this.#usageHeaders = quotaHeaders(current, project.record.quota);
    if (count.kind === 'exceeded') this.#refuse('quota_exceeded');
    else this.#counted = count;
    return count.kind === 'counted';
  }

  // ---- The stream ----

  #publish(project: ProjectState, envelope: HeldEnvelope, items: HeldItem[]): Promise<PublishResult> {
    const { id, use, privacy } = project;
    this.stopTimer(); // the publisher has a deadline
    const { eventId, sentAt, sdk, spool } = envelope;
    const entry: EnvelopeEntry = {
      kind: 'envelope',
      projectId: id,
      eventId,
      receivedAt: this.parts.clock.now(),
      sentAt,
      sdk,
      month: this.#counted?.month,
      position: this.#counted?.position,
      items,
      privacy: privacy && this.#privacyOf(privacy),
    };
    const options = { deadline: this.#deadline, source: spool?.only(envelope.items, items), use };
    return new Promise((resolve) => this.parts.publisher.publish(entry, options, resolve));
  }

  /** As the project wants it when the envelope is accepted; undefined: there is nothing to do. */
  #privacyOf({ scrub, names }: Privacy): Privacy | undefined {
    const clientAddress = this.#clientAddress;
    const isNeeded = scrub.length + names.length > 0 || clientAddress !== undefined;
    return isNeeded ? { scrub, names, clientAddress } : undefined;
  }

  #conclude(result: PublishResult, envelope: HeldEnvelope, kept: readonly HeldItem[]): void {
    if (result === 'stored') {
      for (const item of kept) this.parts.metrics.items[item.type]++;
      return this.#succeed('accepted', envelope);
    }
    if (result === 'unknown') return this.fail('no acknowledgement from the stream before the deadline');
    if (this.#counted) this.parts.admission.refund((this.#access as Access).project, this.#counted.month);
    if (envelope.spool) this.#refuseUnqueued('not read from the spool before the deadline');
    else this.#refuse('overloaded');
  }

  /** An overload, unless it is the disk that does not answer: that is a fault. */
  #refuseUnqueued(reason: string): void {
    if (this.parts.budget.disk.isLate) this.fail(reason);
    else this.#refuse('overloaded');
  }

  // ---- The answer ----

  #succeed(
    outcome: 'accepted' | 'empty' | 'filtered',
    { eventId, skipped }: HeldEnvelope,
    headers = '',
  ): void {
    const isWhole = skipped.size === 0 && !this.#dropped;
    this.finish(outcome, {
      status: '200 OK',
      headers: isWhole ? headers : headers + this.#noteMissing(skipped),
      body: `{"id":"${eventId}"}`,
    });
  }

  /** @returns the header line that tells the client to stop sending such items for a while */
  #noteMissing(skipped: SkippedItems): string {
    for (const [type, count] of skipped) this.parts.metrics.skipped[type] += count;
    const hints = categoryHints(this.#dropped ?? [], this.parts.clock);
    const unsupported = this.parts.rateHint(skipped.keys());
    if (unsupported) hints.push(unsupported);
    return hints.length > 0 ? headerLines([[RATE_HINT, hints.join(', ')]]) : '';
  }

  #refuseBody({ kind, detail }: Extract<UploadResult, { ok: false }>['failure']): void {
    const requestId = this.exchange.requestId || undefined;
    this.parts.log.debug({ project: this.#access?.project.id, requestId, kind, detail }, 'body refused');
    this.#refuse(kind);
  }

  #refuse(outcome: keyof typeof REFUSALS): void {
    this.finish(outcome, REFUSALS[outcome]);
  }

  protected override trace(): FinishedRequest {
    return { exchange: this.exchange, access: this.#access, counted: this.#counted };
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
