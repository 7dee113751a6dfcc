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
import type { CountDecision, RateDecision } from '../limit/admission.ts';
import { ANSWER_MS_MAX } from '../limits.ts';
import type { ProjectState } from '../projects/project-state.ts';
import type { EnvelopeEntry, Privacy } from '../stream/frame.ts';
import type { PublishResult } from '../stream/publish/publisher.ts';
import { type Answer, headerLines, type Outcome, REFUSALS } from './answers/outcome.ts';
import { RATE_HINT } from './answers/rate-hints.ts';
import { quotaHeaders, rateHeaders } from './answers/usage-headers.ts';
import { Credentials } from './auth.ts';
import { EndpointRequest } from './endpoint-request.ts';
import type { Exchange } from './exchange.ts';
import type { FinishedRequest, RequestParts } from './parts.ts';
import { type RequestHead, readFacts } from './request-head.ts';

const NO_ITEMS: HeldItem[] = [];

export class IngestRequest extends EndpointRequest {
  #project: ProjectState | undefined;
  /** Header lines. */
  #rateHeaders = '';
  #usageHeaders = '';
  #upload: Upload | undefined;
  /** Undefined until the body was read, or refused. */
  #body: UploadResult | undefined;
  #bodyRead: ((result: UploadResult) => void) | undefined;
  /** Set when the token was asked for before the body went to disk; false: there was none. */
  #earlyToken: Promise<boolean> | undefined;
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
    const project = this.#authenticate(head, credentials.key);
    if (!project) return;
    const { publisher, budget, admission } = this.parts;
    if (!publisher.available || !budget.hasRoom) return this.#refuse('overloaded');
    // A flood over the limit ends here: nothing is made ready for its bodies.
    if (!this.#accepts(admission.knownRefusal(project))) return;

    const facts = readFacts(head, project.filters);
    if (project.privacy?.fillIp)
      this.#clientAddress = this.parts.trustedProxies?.clientOf(head, this.exchange.peer);
    credentials.keepAgent(head);
    const body = await this.#readBody(head, project);
    const kept = body.ok ? await this.#filter(project, facts, body.envelope) : NO_ITEMS;
    const isFiltered = typeof kept === 'string';
    if (!(await this.#admit(project, !isFiltered && kept.length > 0))) return;

    if (!body.ok) return this.#refuseBody(body.failure);
    const { envelope } = body;
    if (isFiltered) return this.#succeed('filtered', envelope, headerLines([['X-Service-Filtered', kept]]));
    // Nothing to store: neither counted nor queued (contract part 2, Accepted).
    if (kept.length === 0) return this.#succeed('empty', envelope);
    envelope.sdk ??= credentials.client;
    this.#conclude(await this.#publish(project, envelope, kept), envelope, kept);
  }

  #authenticate(head: RequestHead, key: string): ProjectState | undefined {
    const project = key === '' ? undefined : this.parts.replica.findProject(head.getParameter(0));
    if (project?.record.key === key) {
      this.#project = project;
      return project;
    }
    this.#refuse(key === '' ? 'unauthenticated' : 'forbidden_key');
    return undefined;
  }

  // ---- The body ----

  /** Never settles when the client goes away. */
  #readBody(head: RequestHead, project: ProjectState): Promise<UploadResult> {
    const { maxBodyBytes, budget } = this.parts;
    return new Promise((resolve) => {
      if (Number(head.getHeader('content-length')) > maxBodyBytes) {
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
        onResult: this.#bodyRead,
        onPressure: (paused) => this.exchange.setPaused(paused),
        beforeSpool: (spool) => this.#takeTokenFirst(project, spool),
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
      this.failAfter(ANSWER_MS_MAX, 'not decoded and spooled before the deadline');
  }

  override inTinyPieces(): void {
    this.#upload?.dispose();
    this.#bodyRead?.({ ok: false, failure: { kind: 'invalid', detail: 'a body of tiny pieces' } });
  }

  /**
   * No flood of uploads is written to disk only to be refused: a body that needs the disk takes its
   * token first.
   */
  #takeTokenFirst(project: ProjectState, spool: () => void): void {
    const asked = this.parts.admission.admit(project, { token: true, count: false });
    this.#earlyToken = asked.then(({ rate }) => this.#accepts(rate));
    this.run(this.#earlyToken.then((has) => has && spool()));
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

  /** @returns whether the request goes on; if not, it is finished */
  async #admit(project: ProjectState, stores: boolean): Promise<boolean> {
    if (this.#earlyToken && !(await this.#earlyToken)) return false;
    if (this.finished) return false;
    if (project.isDeleted) {
      this.#refuse('forbidden_key');
      return false;
    }
    // A client that leaves from now on changes nothing any more.
    if (stores) this.committed = true;
    const wanted = { token: !this.#earlyToken, count: stores };
    const { rate, count } = await this.parts.admission.admit(project, wanted);
    if (this.finished && count?.kind === 'counted') this.parts.admission.refund(project, count.month);
    return this.#accepts(rate) && this.#acceptsCount(project, count);
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
      { project: this.#project?.id },
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

  #publish({ id, privacy }: ProjectState, envelope: HeldEnvelope, items: HeldItem[]): Promise<PublishResult> {
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
    const options = { deadline: this.#deadline, source: spool?.only(envelope.items, items) };
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
    if (this.#counted) this.parts.admission.refund(this.#project as ProjectState, this.#counted.month);
    this.#refuse('overloaded');
  }

  // ---- The answer ----

  #succeed(
    outcome: 'accepted' | 'empty' | 'filtered',
    { eventId, skipped }: HeldEnvelope,
    headers = '',
  ): void {
    this.finish(outcome, {
      status: '200 OK',
      headers: skipped.size === 0 ? headers : headers + this.#noteSkipped(skipped),
      body: `{"id":"${eventId}"}`,
    });
  }

  /** @returns the header line that tells the client to stop sending such items */
  #noteSkipped(skipped: SkippedItems): string {
    for (const [type, count] of skipped) this.parts.metrics.skipped[type] += count;
    const hint = this.parts.rateHint(skipped.keys());
    return hint ? headerLines([[RATE_HINT, hint]]) : '';
  }

  #refuseBody({ kind, detail }: Extract<UploadResult, { ok: false }>['failure']): void {
    this.parts.log.debug({ project: this.#project?.id, kind, detail }, 'body refused');
    this.#refuse(kind);
  }

  #refuse(outcome: keyof typeof REFUSALS): void {
    this.finish(outcome, REFUSALS[outcome]);
  }

  protected override trace(): FinishedRequest {
    return { exchange: this.exchange, project: this.#project, counted: this.#counted };
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
