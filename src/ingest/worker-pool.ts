import { type ChildProcess, fork } from 'node:child_process';
import { childEnvironment } from '../config.ts';
import type { Log } from '../lib/log.ts';
import { lasting, type MetricsSnapshot, sumSnapshots } from '../lib/metrics/metrics.ts';
import { REQUEST_HEADER_BYTES_MAX, WORKER_SILENT_MS_MAX } from '../limits.ts';
import { POOL_THREADS } from './envelope/spool-disk.ts';
import type { ProjectRow } from './http/metrics/page-figures.ts';
import type { RequestLines } from './http/metrics/request-log.ts';

// ---- Messages between primary and workers, over IPC ----

export type Readiness = {
  status: 'ready' | 'not ready';
  checks: { redis: 'ok' | 'away'; nats: 'ok' | 'away'; registry: 'ok' | 'loading' | 'missing' };
};

export type FromWorker =
  | { kind: 'listening' }
  | {
      kind: 'beat';
      readiness: Readiness;
      snapshot: MetricsSnapshot;
      projects?: ProjectRow[];
      /** CPU, memory and the like, when the primary asked. */
      process?: MetricsSnapshot;
    }
  | ({ kind: 'requests' } & RequestLines);

/** `beat`: with the figures of the process, which has this name. */
export type ToWorker = { kind: 'stop' } | { kind: 'beat'; projects: boolean; name: string };

// ---- The pool ----

/** One that has said nothing yet is given no connections: it may take its time to start. */
const START_MS_MAX = 60_000;
const RESTART_MS_MIN = 100;
const RESTART_MS_MAX = 5_000;

const WATCH_MS = 1_000;
/** A look that comes this late says that this process stood still, not that the workers did. */
const WATCH_LATE_MS = 2 * WATCH_MS;
/** A worker that has lived this long starts the back-off anew when it dies. */
const HEALTHY_MS = 10_000;
/** Snapshots of the dead that are kept apart before they are summed into one. */
const DEPARTED_MAX = 16;
/** A worker that does not end by itself after this is killed. */
const STOP_MS_MAX = 30_000;
/**
 * A worker's live heap is some 15 MiB. V8 (Node 20) sets the bound of the old space close above
 * that, and bodies, which are external memory, count against it. So without a floor V8 marks the
 * whole heap ten times a second at half load. Below this many MiB it does not.
 */
const OLD_SPACE_UNLOOKED = '--initial-old-space-size=64';
/**
 * V8 learns which objects outlive a collection, and makes later ones of that kind in the old space.
 * In a worker's first moments that is every request, because the young space is still small. All
 * later requests would then live until a full collection, which costs a quarter more CPU.
 */
const NOTHING_BORN_OLD = '--no-allocation-site-pretenuring';
/**
 * Bounds each half of the young space at 16 MiB, which is the default of Node 20 and 22. With the
 * 64 MiB of Node 24 a worker needs four tenths more CPU for the canonical mix and a processor up to
 * a quarter more, and both need 30 to 70 MiB more.
 */
export const YOUNG_SPACE = '--max-semi-space-size=16';
/** For what its inflaters leave behind (ingest/envelope/inflate/inflater.ts). */
export const COLLECTIONS_ON_REQUEST = '--expose-gc';
/**
 * Of a processor, under `dev` and in the image. Frames in hand are external memory, as a worker's
 * bodies are: without a floor for the old space it needs up to a third more CPU on Node 24. The
 * image gives both flags to every command, and `dev` to a primary too, which is 6 MiB larger then.
 */
export const PROCESSOR_FLAGS = [YOUNG_SPACE, '--initial-old-space-size=128'] as const;

/**
 * uWebSockets.js buffers so much of a head that comes in segments, and answers 431 beyond it; left
 * to itself 4 KiB. Twice our own bound, so that a head that has more headers than that, or a long
 * request line too, gets our answer. It reads this when it is loaded.
 */
const LIBRARY_SETTINGS = { UWS_HTTP_MAX_HEADERS_SIZE: `${2 * REQUEST_HEADER_BYTES_MAX}` };

type Worker = {
  process: ChildProcess;
  startedAt: number;
  heardAt: number;
  /** When it last gave what it was asked for; a beat of its own may come in between. */
  answeredAt: number;
  /** Its loop runs. */
  hasSpoken: boolean;
  readiness: Readiness | undefined;
  snapshot: MetricsSnapshot;
  /** The lowest that no living sibling has: its name in the metrics. */
  number: number;
  /** Its CPU, memory and the like, as of the last time that they were asked for. */
  ofProcess: MetricsSnapshot;
  /** As of the last time that the page asked for them. */
  projects: ProjectRow[];
};

type WorkerPoolOptions = {
  /** The program of a worker. */
  program: URL;
  count: number;
  log: Log;
  onRequests(lines: RequestLines): void;
};

/**
 * Keeps `count` workers alive.
 *
 * A worker that dies is started again, after a pause that doubles from RESTART_MS_MIN up to
 * RESTART_MS_MAX while workers die young. One that lives but no longer runs its loop is
 * killed after WORKER_SILENT_MS_MAX: the kernel would go on giving it its share of new connections;
 * one that has not come so far yet has START_MS_MAX. What a dead worker has counted goes on
 * counting. A primary that stood still itself (stopped, starved, its machine suspended) finds what
 * the workers said only after its timers have run, so it gives them their time anew: before that,
 * waking up after seven seconds killed every healthy worker at once.
 */
export class WorkerPool {
  readonly #options: WorkerPoolOptions;
  readonly #workers = new Set<Worker>();
  readonly #watch: NodeJS.Timeout;
  readonly #startedAt = performance.now();
  #watchedAt = performance.now();
  #departed: MetricsSnapshot[] = [];
  #backOffMs = RESTART_MS_MIN;
  #stopping = false;
  restarts = 0;
  /**
   * All workers have been ready together at some time, or it took so long that those that are must
   * do.
   */
  wasComplete = false;

  constructor(options: WorkerPoolOptions) {
    this.#options = options;
    for (let n = 0; n < options.count; n++) this.#start();
    this.#watch = setInterval(() => this.#killSilent(), WATCH_MS);
  }

  get size(): number {
    return this.#workers.size;
  }

  /** What the workers last said of themselves; undefined for one that has not spoken yet. */
  get readiness(): (Readiness | undefined)[] {
    return [...this.#workers].map((worker) => worker.readiness);
  }

  /** By living worker, as of the last {@link snapshots} that asked for projects. */
  get projects(): ProjectRow[][] {
    return [...this.#workers].map((worker) => worker.projects);
  }

  /**
   * Fresh figures of every living worker and the lasting ones of the dead. Waits at most `waitMs`
   * for the living.
   */
  async snapshots(waitMs: number, projects = false): Promise<MetricsSnapshot[]> {
    const asked = performance.now();
    for (const worker of this.#workers)
      this.#tell(worker, { kind: 'beat', projects, name: `worker ${worker.number}` });
    while (
      performance.now() - asked < waitMs &&
      [...this.#workers].some((worker) => worker.answeredAt < asked)
    )
      await new Promise((resolve) => setTimeout(resolve, 5));
    return [
      ...this.#departed,
      ...[...this.#workers].flatMap(({ snapshot, ofProcess }) => [snapshot, ofProcess]),
    ];
  }

  /** Asks every worker to leave and resolves when all are gone. */
  async stop(): Promise<void> {
    this.#stopping = true;
    clearInterval(this.#watch);
    const gone = [...this.#workers].map(
      (worker) => new Promise((resolve) => worker.process.once('exit', resolve)),
    );
    for (const worker of this.#workers) this.#tell(worker, { kind: 'stop' });
    const killer = setTimeout(() => {
      for (const worker of this.#workers) worker.process.kill('SIGKILL');
    }, STOP_MS_MAX);
    await Promise.all(gone);
    clearTimeout(killer);
  }

  #start(): void {
    const child = fork(this.#options.program, {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      env: childEnvironment({ ...LIBRARY_SETTINGS, UV_THREADPOOL_SIZE: `${POOL_THREADS}` }),
      execArgv: [
        ...process.execArgv,
        OLD_SPACE_UNLOOKED,
        NOTHING_BORN_OLD,
        YOUNG_SPACE,
        COLLECTIONS_ON_REQUEST,
      ],
    });
    const now = performance.now();
    const worker: Worker = {
      process: child,
      startedAt: now,
      heardAt: now,
      answeredAt: now,
      hasSpoken: false,
      readiness: undefined,
      snapshot: [],
      number: this.#freeNumber(),
      ofProcess: [],
      projects: [],
    };
    this.#workers.add(worker);
    child.on('message', (message: FromWorker) => this.#hear(worker, message));
    child.on('error', (error) => {
      this.#options.log.error({ err: error }, 'worker');
      // What the system could not start never exits.
      if (child.pid === undefined) this.#lost(worker, { code: null, signal: null });
    });
    child.once('exit', (code, signal) => this.#lost(worker, { code, signal }));
  }

  #freeNumber(): number {
    const taken = new Set([...this.#workers].map(({ number }) => number));
    let number = 1;
    while (taken.has(number)) number++;
    return number;
  }

  #hear(worker: Worker, message: FromWorker): void {
    worker.heardAt = performance.now();
    worker.hasSpoken = true;
    if (message.kind === 'requests') this.#options.onRequests(message);
    else if (message.kind === 'beat') {
      worker.readiness = message.readiness;
      worker.snapshot = message.snapshot;
      if (message.projects) worker.projects = message.projects;
      if (message.process) [worker.ofProcess, worker.answeredAt] = [message.process, worker.heardAt];
      const ready = this.readiness.filter((one) => one?.status === 'ready').length;
      const isLate = worker.heardAt - this.#startedAt > START_MS_MAX;
      this.wasComplete ||= ready === this.#options.count || (isLate && ready > 0);
    }
  }

  #lost(worker: Worker, how: { code: number | null; signal: string | null }): void {
    if (!this.#workers.delete(worker)) return;
    this.#departed.push(lasting(worker.snapshot));
    if (this.#departed.length > DEPARTED_MAX) void this.#sumDeparted();
    if (this.#stopping) return;
    this.restarts++;
    if (performance.now() - worker.startedAt > HEALTHY_MS) this.#backOffMs = RESTART_MS_MIN;
    this.#options.log.error(
      { worker: worker.process.pid, ...how, restartInMs: this.#backOffMs },
      'worker died',
    );
    this.#startLater();
  }

  #startLater(): void {
    setTimeout(() => {
      if (this.#stopping) return;
      try {
        this.#start();
      } catch (error) {
        // A start may fail, when memory is short for example. The other workers go on.
        this.#options.log.error({ err: error, againInMs: this.#backOffMs }, 'no worker can be started');
        this.#startLater();
      }
    }, this.#backOffMs);
    this.#backOffMs = Math.min(this.#backOffMs * 2, RESTART_MS_MAX);
  }

  /**
   * Adds up the metrics of dead workers, so that a worker which dies for a week costs no memory.
   */
  async #sumDeparted(): Promise<void> {
    const summed = this.#departed;
    this.#departed = [];
    this.#departed.push((await sumSnapshots(summed).getMetricsAsJSON()) as MetricsSnapshot);
  }

  #killSilent(): void {
    const now = performance.now();
    const stoodStill = now - this.#watchedAt > WATCH_LATE_MS;
    this.#watchedAt = now;
    for (const worker of this.#workers) {
      if (stoodStill) worker.heardAt = now;
      const patience = worker.hasSpoken ? WORKER_SILENT_MS_MAX : START_MS_MAX;
      if (now - worker.heardAt < patience) continue;
      this.#options.log.error({ worker: worker.process.pid }, 'worker does not answer: killed');
      worker.process.kill('SIGKILL');
    }
  }

  #tell(worker: Worker, message: ToWorker): void {
    if (worker.process.connected) worker.process.send(message, () => undefined);
  }
}
