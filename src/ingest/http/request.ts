/**
 * The steps of one ingest request, from top to bottom: authenticate → room → known refusal → body →
 * filter → one admission (token and position) → publish → answer. A request has exactly one
 * outcome. Each step runs only if the one before passed, with one exception: a body that is refused
 * for its content, or that holds nothing to store, still takes a token.
 *
 *     serve → #readBody … #onBody → #onFiltered → #admit … #onAdmission → #answerOrPublish
 *                 │          │                                                └─ … #onPublished
 *                 │          └─ #filter (… for payloads that are on the disk)
 *                 └─ #takeTokenFirst … (for a body that goes to disk: it waits for permission)
 *
 * At each `…` the request waits, and a callback continues it. Promises instead of callbacks would
 * cost a twentieth of a worker's time (bench/HISTORY.md). So only steps that wait for the disk use
 * promises.
 */

import { type Category, categoryBit, isContainerType, typeBit } from '../../lib/item-types.ts';
import { Slot } from '../../lib/slots.ts';
import { AGENT_CHARS_MAX, ANSWER_MS_MAX } from '../../limits.ts';
import type { Project, ProjectPrivacy } from '../../projects/project.ts';
import type { Access, ProjectState, RateScope } from '../../projects/project-state.ts';
import type { EnvelopeEntry, Privacy } from '../../stream/frame.ts';
import type { PublishResult } from '../../stream/publish/publisher.ts';
import type { HeldEnvelope, HeldItem, SkippedItems, UploadResult } from '../envelope/upload.ts';
import { Upload } from '../envelope/upload.ts';
import {
  type CompiledFilters,
  compileFilters,
  filterItems,
  filterSpooled,
  type InboundFilter,
  needsPayload,
} from '../filter/inbound.ts';
import type { AdmissionResult, CountDecision, RateDecision } from '../limit/admission.ts';
import { categoryHints, joinHints, quotaHeaders, RATE_HINT, rateHeaders } from './answers/limit-headers.ts';
import { type Answer, EMPTY, headerLines, type Outcome } from './answers/outcome.ts';
import { ClientKey } from './client-key.ts';
import { EndpointRequest, exceeds, type RequestServices, TINY_PIECES } from './endpoint-request.ts';
import type { Exchange } from './exchange.ts';
import { ENVELOPE, type ItemEndpoint } from './item-endpoints.ts';
import type { FinishedRequest, RefusedKey } from './record.ts';
import type { KnownHeaders, RequestHead } from './request-head.ts';

/** Compiled filters of each project. They are compiled again when the project's record changes. */
const COMPILED = new Slot<{ record: Project; filters: CompiledFilters }, ProjectState>(
  ({ record }) => ({ record, filters: compileFilters(record) }),
  () => false,
);
function filtersOf(project: ProjectState): CompiledFilters {
  const compiled = COMPILED.of(project);
  return (compiled.record === project.record ? compiled : COMPILED.renew(project)).filters;
}

const NO_ITEMS: HeldItem[] = [];
const OTHER_TYPE = 'the content type is not taken here';

/** The items that the filters keep; or, when they keep none, the filter to name in the answer. */
type FilterResult = HeldItem[] | InboundFilter;
type RefusedRate = Extract<RateDecision, { kind: 'refused' }>;

/**
 * The category whose window refuses. Undefined when nothing refuses, or when the window of the
 * project or key refuses.
 */
const categoryThatRefuses = (scope: RateScope, rate: RateDecision | undefined): Category | undefined =>
  rate?.kind === 'refused' ? scope.refusingCategory(rate.windowNumber) : undefined;
/**
 * The decision that the X-RateLimit headers show; undefined when there is none to show. When the
 * scope has only windows of categories, its admissions are not shown.
 */
const shownRate = (scope: RateScope, rate: RateDecision | undefined): RateDecision | undefined =>
  scope.hasOwnWindow || rate?.kind !== 'admitted' ? rate : undefined;

export class IngestRequest extends EndpointRequest {
  readonly #endpoint: ItemEndpoint;
  #clientKey: ClientKey | undefined;
  #access: Access | undefined;
  /** The refused key, and the project that refuses it. */
  #refused: RefusedKey | undefined;
  #headers: KnownHeaders | undefined;
  /** Header lines of the answer about the limit; `#usageHeaders` has those about the quota. */
  #rateHeaders = '';
  #usageHeaders = '';
  #upload: Upload | undefined;
  /** The envelope, or why the body was refused; undefined while the body is being read. */
  #body: UploadResult | undefined;
  /** The filter to name in the answer when filters have removed all items. */
  #filteredBy: InboundFilter | undefined;
  /**
   * Set when the request took its token early, before its body went to disk: the limited categories
   * (as bits) in whose windows that token is booked.
   */
  #earlyCategories: number | undefined;
  /** Categories over their limits, whose items are dropped. */
  #dropped: { resetSec: number; category: Category }[] | undefined;
  /** The client's address, when the project wants it to be filled in. */
  #clientAddress: string | undefined;
  #counted: { month: string; position: number } | undefined;
  /** When the answer is due, monotonic ms; set with the last body byte. */
  #deadline = 0;

  constructor(services: RequestServices, exchange: Exchange, endpoint = ENVELOPE) {
    super(services, exchange, endpoint);
    this.#endpoint = endpoint;
  }

  protected override serve(head: RequestHead): void {
    const clientKey = new ClientKey(head);
    const access = this.#authenticate(head, clientKey.key);
    if (!access) return;
    const { project, scope } = access;
    const { publisher, budget, admission } = this.services;
    const announced = Number(head.headers['content-length']);
    if (!publisher.hasRoomFor(project.id, project, announced) || !budget.hasRoomFor(project))
      return this.refuse('overloaded');
    // A flood of requests over the limit ends here, before anything is prepared for the bodies.
    if (!this.#passOrRefuseRate(admission.knownRefusal(scope))) return;

    this.#headers = head.headers;
    if (project.privacy?.fillIp)
      this.#clientAddress = this.services.trustedProxies?.clientOf(head, this.exchange.peer);
    this.#clientKey = clientKey;
    this.#readBody(head, project, announced);
  }

  #authenticate(head: RequestHead, key: string): Access | undefined {
    const { clock, replica } = this.services;
    const project = key === '' ? undefined : replica.findProject(head.getParameter(0));
    this.#access = project?.authenticate(key, clock);
    if (this.#access) return this.#access;
    if (project) this.#refuseKey(project, key);
    else this.refuse(key === '' ? 'unauthenticated' : 'forbidden_key');
    return undefined;
  }

  #refuseKey(project: ProjectState, key: string): void {
    this.#refused = { project, key };
    this.reason = project.refusalOf(key);
    this.refuse('forbidden_key');
  }

  // ---- The body ----

  /** Reads the body. {@link #onBody} goes on, unless the request ends before. */
  #readBody(head: RequestHead, project: ProjectState, announced: number): void {
    const { budget } = this.services;
    const { bytesMax = budget.maxBodyBytes, mayBeBase64 } = this.#endpoint;
    budget.inflationQueue.note(project, this.exchange.startedAt);
    if (announced > Math.min(bytesMax, budget.maxBodyBytes)) {
      const detail = exceeds(Math.min(bytesMax, budget.maxBodyBytes));
      return this.#onBody({ ok: false, failure: { kind: 'too_large', detail } });
    }
    const newReader = this.#endpoint.readerFor(head, project.id);
    if (!newReader) return this.#onBody({ ok: false, failure: { kind: 'unsupported', detail: OTHER_TYPE } });
    const upload = new Upload({
      encoding: head.headers['content-encoding'],
      newReader,
      mayBeBase64,
      bytesMax: this.#endpoint.bytesMax,
      budget,
      project,
      onResult: (result) => this.guard(() => this.#onBody(result)),
      onPressure: (paused) => this.exchange.setPaused(paused),
      onWaitsForLeave: () => this.#takeTokenFirst(upload),
    });
    this.#upload = upload;
    this.exchange.read(this);
  }

  feed(chunk: Uint8Array, isWhole: boolean): void {
    this.guard(() => this.#upload?.feed(chunk, isWhole));
  }

  end(): void {
    this.#deadline = this.services.clock.monotonic() + ANSWER_MS_MAX;
    this.guard(() => this.#upload?.end());
    // A timer is needed, because neither the disk nor the inflaters have a time-out of their own.
    if (!this.#body)
      this.runAfter(ANSWER_MS_MAX, () =>
        this.#refuseUnqueued('not inflated and spooled before the deadline'),
      );
  }

  override inTinyPieces(): void {
    this.guard(() => this.#upload?.fail('invalid', TINY_PIECES));
  }

  #onBody(body: UploadResult): void {
    this.#body = body;
    // A refused body takes a token as well, even when it was refused as `overloaded`. So a flood of
    // bodies that inflate to many times their size is limited like any other.
    const filtered = body.ok ? this.#filter(body.envelope) : NO_ITEMS;
    // Only bodies with payloads on the disk need a promise; one for each request would cost time.
    if (!(filtered instanceof Promise)) return this.#onFiltered(filtered);
    const msLeft = Math.max(1, this.#deadline - this.services.clock.monotonic());
    this.runAfter(msLeft, () => this.#refuseUnqueued('not read from the spool before the deadline'));
    this.watch(filtered.then((kept) => this.#onFiltered(kept)));
  }

  /**
   * Takes the token for a body before the body is written to disk, so that a flood over the limit
   * is not written. When only windows of categories refuse, items that are still to come may be
   * stored. So the body is written, and {@link #admit} asks again. If the key was revoked
   * meanwhile, the token is taken from the project here, and {@link #admit} refuses the request.
   */
  #takeTokenFirst(upload: Upload): void {
    const { project } = this.#access as Access;
    const keyScope = this.#scopeOfKeyNow() ?? project;
    const categories = project.limitedIn(upload.items);
    const scope = project.withCategories(keyScope, categories, false);
    const goOn = ({ rate }: AdmissionResult): void => {
      const isForCategory = categoryThatRefuses(scope, rate) !== undefined;
      if (!isForCategory && !this.#passOrRefuseRate(shownRate(scope, rate))) return;
      if (!isForCategory) this.#earlyCategories = categories;
      upload.proceed();
    };
    const wanted = { token: true, count: false };
    this.services.admission.admit(scope, wanted, (admitted) => this.guard(() => goOn(admitted)));
  }

  // ---- The filters ----

  #filter(envelope: HeldEnvelope): FilterResult | Promise<FilterResult> {
    const filters = filtersOf((this.#access as Access).project);
    const { items, spool } = envelope;
    const headers = this.#headers as KnownHeaders;
    if (!spool || !needsPayload(filters, items)) return filterItems(filters, headers, items);
    const read = (item: HeldItem): Promise<Uint8Array> =>
      this.services.pickSpooled(spool.only(items, [item]));
    return filterSpooled(filters, headers, { items, read }).catch((error) => {
      // A request that has ended has closed its spool, so reading may fail.
      if (this.finished) return NO_ITEMS;
      throw error;
    });
  }

  #onFiltered(filtered: FilterResult): void {
    this.stopTimer(); // The limiter and the publisher have time-outs of their own.
    if (typeof filtered === 'string') this.#filteredBy = filtered;
    const kept = typeof filtered === 'string' ? NO_ITEMS : filtered;
    this.#admit(kept);
  }

  // ---- The admission ----

  /**
   * Returns the present scope of the request's key, because the record may have changed while the
   * body came; undefined when the project no longer accepts the key.
   */
  #scopeOfKeyNow(): RateScope | undefined {
    const { key } = this.#clientKey as ClientKey;
    return (this.#access as Access).project.authenticate(key, this.services.clock)?.scope;
  }

  /**
   * Asks for a token and a position. Items of a category over its limit are dropped, and the
   * request asks again for the rest.
   */
  #admit(kept: HeldItem[]): void {
    if (this.finished) return;
    const { project } = this.#access as Access;
    const keyScope = this.#scopeOfKeyNow();
    if (!keyScope) return this.#refuseKey(project, (this.#clientKey as ClientKey).key);
    if (kept.length > 0) this.committed = true;
    const early = this.#earlyCategories;
    const categories = project.limitedIn(kept) & ~(early ?? 0);
    const scope = project.withCategories(keyScope, categories, early !== undefined);
    const wanted = { token: early === undefined || categories > 0, count: kept.length > 0 };
    this.services.admission.admit(scope, wanted, (admitted) =>
      this.guard(() => this.#onAdmission(kept, scope, admitted)),
    );
  }

  #onAdmission(kept: HeldItem[], scope: RateScope, { rate, count }: AdmissionResult): void {
    const { project } = scope;
    const category = categoryThatRefuses(scope, rate);
    if (category) {
      const rest = this.#drop(kept, category, rate as RefusedRate);
      return rest.length > 0 ? this.#admit(rest) : undefined;
    }
    if (this.#passOrRefuseRate(shownRate(scope, rate)) && this.#passOrRefuseCount(project, count))
      this.#answerOrPublish(kept);
  }

  /**
   * Drops the items of a category over its limit. When no item is left, the request is refused.
   * @returns the remaining items
   */
  #drop(items: readonly HeldItem[], category: Category, { resetSec }: RefusedRate): HeldItem[] {
    const bit = categoryBit(category);
    const rest: HeldItem[] = [];
    for (const item of items)
      if (typeBit(item.type) !== bit) rest.push(item);
      else this.services.metrics.rateLimited[item.type]++;
    this.#dropped ??= [];
    this.#dropped.push({ resetSec, category });
    if (rest.length > 0) return rest;
    this.#rateHeaders = rateHeaders.ofCategories(this.#dropped, this.services.clock);
    this.reason = category;
    this.refuse('rate_limited');
    return rest;
  }

  /**
   * Returns true, or refuses the request and returns false.
   * @param rate undefined: no token was asked for
   */
  #passOrRefuseRate(rate: RateDecision | undefined): boolean {
    if (this.finished) return false;
    if (!rate) return true;
    if (rate.kind !== 'unavailable') {
      this.#rateHeaders = rateHeaders.of(rate, this.services.clock);
      if (rate.kind === 'refused') this.refuse('rate_limited');
      return rate.kind === 'admitted';
    }
    if (this.services.whileAway.rateToken === 'refuse') {
      this.#rateHeaders = rateHeaders.unavailable(this.services.clock.now());
      this.refuse('limiter_unavailable');
      return false;
    }
    this.services.log.warn(
      { project: this.#access?.project.id, requestId: this.exchange.requestId || undefined },
      'rate limiter unavailable: let through in development',
    );
    return true;
  }

  #passOrRefuseCount(project: ProjectState, count: CountDecision | undefined): boolean {
    if (!count) return true;
    if (count.kind === 'unavailable') {
      if (this.services.whileAway.quota === 'fail') {
        // The broker holds the month's checkpoint. When the broker is away, the answer is 503, else
        // 500.
        if (this.services.publisher.available) this.fail('the quota could not be counted');
        else this.refuse('overloaded');
        return false;
      }
      this.services.log.warn({ project: project.id }, 'quota not counted: let through in development');
      return true;
    }
    const current = count.kind === 'counted' ? count.position : count.current;
    this.#usageHeaders = quotaHeaders(current, project.record.quota);
    if (count.kind === 'exceeded') this.refuse('quota_exceeded');
    else this.#counted = count;
    return count.kind === 'counted';
  }

  // ---- The stream ----

  #answerOrPublish(items: HeldItem[]): void {
    const body = this.#body as UploadResult;
    if (!body.ok) return this.#refuseBody(body.failure);
    const { envelope } = body;
    const filter = this.#filteredBy;
    if (filter) {
      this.reason = filter;
      return this.#succeed('filtered', envelope, headerLines([['X-Service-Filtered', filter]]));
    }
    // Nothing is left to store, so the envelope is neither counted nor queued.
    if (items.length === 0) {
      this.reason = envelope.skipped.size === 0 ? 'no-items' : 'unstored-types';
      return this.#succeed('empty', envelope, headerLines([[EMPTY, this.reason]]));
    }
    envelope.sdk ??= this.#clientKey?.client;
    this.#publish(envelope, items);
  }

  #publish(envelope: HeldEnvelope, items: HeldItem[]): void {
    const { project } = this.#access as Access;
    const { id, privacy } = project;
    const { eventId, sentAt, sdk, spool } = envelope;
    const entry: EnvelopeEntry = {
      kind: 'envelope',
      projectId: id,
      eventId,
      receivedAt: this.services.clock.now(),
      sentAt,
      sdk,
      month: this.#counted?.month,
      position: this.#counted?.position,
      items,
      privacy: privacy && this.#privacyOf(privacy, items),
    };
    const options = { deadline: this.#deadline, source: spool?.only(envelope.items, items), project };
    this.services.publisher.publish(entry, options, (result) =>
      this.guard(() => this.#onPublished(result, envelope, items)),
    );
  }

  /**
   * Returns the changes that the processor shall make to the payloads, by the project's settings at
   * this moment; undefined when it shall make none.
   */
  #privacyOf({ scrub, names, fillIp }: ProjectPrivacy, items: readonly HeldItem[]): Privacy | undefined {
    const clientAddress = fillIp ? this.#clientAddress : undefined;
    const userAgent = fillIp ? this.#agentFor(items) : undefined;
    const isNeeded =
      scrub.length + names.length > 0 || clientAddress !== undefined || userAgent !== undefined;
    return isNeeded ? { scrub, names, clientAddress, userAgent } : undefined;
  }

  /**
   * Returns the request's User-Agent for an envelope with containers. Only a container can have the
   * setting `infer_user_agent`, by which its SDK asks that the User-Agent be filled in.
   * @returns undefined when the envelope has no container, and when the User-Agent is missing,
   * empty or longer than AGENT_CHARS_MAX
   */
  #agentFor(items: readonly HeldItem[]): string | undefined {
    const userAgent = this.#headers?.['user-agent'] ?? '';
    const isFit = userAgent !== '' && userAgent.length <= AGENT_CHARS_MAX;
    return isFit && items.some(({ type }) => isContainerType(type)) ? userAgent : undefined;
  }

  #onPublished(result: PublishResult, envelope: HeldEnvelope, kept: readonly HeldItem[]): void {
    if (result === 'stored') {
      for (const item of kept) this.services.metrics.items[item.type]++;
      return this.#succeed('accepted', envelope);
    }
    if (result === 'unknown') return this.fail('no acknowledgement from the stream before the deadline');
    if (this.#counted) this.services.admission.refund((this.#access as Access).project, this.#counted.month);
    if (envelope.spool) this.#refuseUnqueued('the spooled envelope was not queued');
    else this.refuse('overloaded');
  }

  /** Refuses the request with 503, or fails it with 500 when a call to the disk is late. */
  #refuseUnqueued(reason: string): void {
    if (this.services.budget.disk.isLate) this.fail(reason);
    else this.refuse('overloaded');
  }

  // ---- The answer ----

  #succeed(
    outcome: 'accepted' | 'empty' | 'filtered',
    { eventId, skipped }: HeldEnvelope,
    headers = '',
  ): void {
    const isWhole = skipped.size === 0 && !this.#dropped;
    for (const [type, count] of skipped) this.services.metrics.skipped[type] += count;
    const { status, body, isProtobuf } = this.#endpoint.answers.accepted(eventId);
    const hint = isWhole ? '' : this.#missingHint(skipped);
    this.finish(outcome, { status, headers: headers + hint, body, isProtobuf });
  }

  /**
   * @returns the header line that tells the client to stop sending the items that were not stored
   */
  #missingHint(skipped: SkippedItems): string {
    const hints = categoryHints(this.#dropped ?? [], this.services.clock);
    const unsupported = this.services.unsupportedHint(skipped.keys());
    if (unsupported) hints.push(unsupported);
    return hints.length > 0 ? headerLines([[RATE_HINT, joinHints(hints)]]) : '';
  }

  #refuseBody({ kind, detail }: Extract<UploadResult, { ok: false }>['failure']): void {
    const requestId = this.exchange.requestId || undefined;
    this.services.log.debug({ project: this.#access?.project.id, requestId, kind, detail }, 'body refused');
    if (kind === 'overloaded') this.refuse(kind);
    else this.refuseBody(kind, detail);
  }

  protected override summary(): FinishedRequest {
    return {
      exchange: this.exchange,
      access: this.#access,
      counted: this.#counted,
      reason: this.reason,
      refused: this.#refused,
    };
  }

  protected override finish(outcome: Outcome, answer?: Answer): void {
    if (this.finished) return;
    this.#upload?.dispose();
    const usage = outcome === 'accepted' || outcome === 'quota_exceeded' ? this.#usageHeaders : '';
    if (!answer) return super.finish(outcome);
    const { status, headers, body, isProtobuf } = answer;
    super.finish(outcome, { status, headers: this.#rateHeaders + usage + headers, body, isProtobuf });
  }
}
