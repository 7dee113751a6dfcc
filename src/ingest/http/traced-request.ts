/**
 * A sampled request: an IngestRequest with a span for each step. Wrappers of its services add the
 * spans, and IngestRequest knows nothing of them.
 */
import type { Span, Tracing } from '../../lib/tracing/tracing.ts';
import type { RequestServices } from './endpoint-request.ts';
import type { Exchange } from './exchange.ts';
import type { ItemEndpoint } from './item-endpoints.ts';
import { IngestRequest } from './request.ts';
import type { ItemOpener } from './server.ts';

/** Returns the function that opens the requests of a worker with tracing. */
export const tracedBy =
  (tracing: Tracing): ItemOpener =>
  (services, exchange, { endpoint, path, head }) => {
    const span = tracing.request(`POST ${path.replace(':project', '{project}')}`, {
      traceparent: head.getHeader('traceparent'),
      tracestate: head.getHeader('tracestate'),
    });
    return span
      ? new TracedRequest(services, exchange, { endpoint, span })
      : new IngestRequest(services, exchange, endpoint);
  };

class TracedRequest extends IngestRequest {
  readonly #receive: Span;

  constructor(
    services: RequestServices,
    exchange: Exchange,
    { endpoint, span }: { endpoint: ItemEndpoint; span: Span },
  ) {
    const receive = span.step('receive');
    super(tracedServices(services, span, receive), exchange, endpoint);
    this.#receive = receive;
  }

  override end(): void {
    this.#receive.end({ 'http.request.body.size': this.exchange.bytesRead });
    super.end();
  }
}

function tracedServices(services: RequestServices, request: Span, receive: Span): RequestServices {
  const { admission, publisher } = services;
  return {
    ...services,
    admission: {
      knownRefusal: (scope) => admission.knownRefusal(scope),
      refund: (project, month) => admission.refund(project, month),
      admit: (scope, wanted, done) => {
        const span = request.step('admit');
        admission.admit(scope, wanted, (admitted) => {
          span.end({ 'sluice.rate': admitted.rate?.kind, 'sluice.quota': admitted.count?.kind });
          done(admitted);
        });
      },
    },
    publisher: {
      get available() {
        return publisher.available;
      },
      hasRoomFor: (projectId, use, bytes) => publisher.hasRoomFor(projectId, use, bytes),
      publish: (entry, options, done) => {
        const span = request.step('publish');
        publisher.publish(entry, { ...options, traceparent: span.traceparent }, (result) => {
          span.end({}, result === 'stored' ? undefined : result);
          done(result);
        });
      },
    },
    record: {
      note: (endpoint, outcome, finished) => {
        services.record.note(endpoint, outcome, finished);
        receive.end();
        const { exchange, access } = finished;
        const facts = {
          'sluice.outcome': outcome,
          'sluice.project': access?.project.id,
          'sluice.request_id': exchange.requestId || undefined,
        };
        request.end(facts, outcome === 'failed' ? outcome : undefined);
      },
    },
  };
}
