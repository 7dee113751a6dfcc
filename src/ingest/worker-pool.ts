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
      /** Absent when nothing has changed that a dead worker's metrics must keep. */
      snapshot?: MetricsSnapshot;
      projects?: ProjectRow[];
      /**
       * Metrics of the worker's process, such as CPU and memory; only when the primary asked for
       * them.
       */
      process?: MetricsSnapshot;
    }
  | ({ kind: 'requests' } & RequestLines);

/**
 * Messages to a worker. `beat` asks for a message `beat` with the metrics of the worker's process
 * under `name`, and with its busiest projects when `projects` is true.
 */
export type ToWorker = { kind: 'stop' } | { kind: 'beat'; projects: boolean; name: string };

// ---- The pool ----

/**
 * Time in ms for which a worker may stay silent after its start. Before its first message a worker
 * does not listen, so the kernel gives it no connections. Once the pool is this old, it counts as
 * complete with a single ready worker.
 */
const START_MS_MAX = 60_000;
const RESTART_MS_MIN = 100;
const RESTART_MS_MAX = 5_000;

const WATCH_MS = 1_000;
/**
 * When more ms than this lie between two checks for silent workers, the primary itself stood still.
 */
const WATCH_LATE_MS = 2 * WATCH_MS;
/**
 * When a worker dies that lived longer than this, in ms, the pause before restarts falls back to
 * RESTART_MS_MIN.
 */
const HEALTHY_MS = 10_000;
/** Most snapshots of dead workers that are kept. When there are more, all are summed into one. */
const DEPARTED_MAX = 16;
/** Time in ms after which a worker that was asked to stop is killed. */
const STOP_MS_MAX = 30_000;
/**
 * Raises the lowest bound of the old space of a worker's heap to 64 MiB. A worker's live heap is
 * some 15 MiB, and V8 (Node 20) would set the bound close above that. Bodies are external memory,
 * and V8 counts them against this bound, too. So V8 would mark the whole heap ten times a second at
 * half load.
 */
const OLD_SPACE_UNLOOKED = '--initial-old-space-size=64';
/**
 * Stops V8 from allocating new objects in the old space. V8 learns which kinds of objects outlive a
 * collection, and then allocates these kinds in the old space. In a worker's first moments every
 * request outlives a collection, because the young space is still small. The objects of all later
 * requests would then live until a full collection, which costs a quarter more CPU.
 */
const NOTHING_BORN_OLD = '--no-allocation-site-pretenuring';
/**
 * Bounds each half of the young space at 16 MiB, the default of Node 20 and 22. Node 24's default
 * is 64 MiB. With it a worker uses 40 % more CPU, a processor up to 25 % more, and each uses 30 to
 * 70 MiB more memory.
 */
export const YOUNG_SPACE = '--max-semi-space-size=16';
/**
 * Lets a program give back the memory of its start (lib/memory.ts), and a worker free the garbage
 * of its inflaters (ingest/envelope/inflate/inflater.ts).
 */
export const COLLECTIONS_ON_REQUEST = '--expose-gc';
/**
 * V8 flags of a processor, under `sluice dev` and in the image. Without the second flag a processor
 * uses up to a third more CPU on Node 24, because the frames that it holds are external memory (see
 * OLD_SPACE_UNLOOKED).
 */
export const PROCESSOR_FLAGS = [YOUNG_SPACE, '--initial-old-space-size=128', COLLECTIONS_ON_REQUEST] as const;

/**
 * Environment variable that uWebSockets.js reads when it is loaded: how many bytes of a request
 * head the library buffers when the head comes in several segments. To a larger head the library
 * itself answers 431. The default is 4 KiB. With twice our own bound, a head that exceeds our
 * bound, even with a long request line, still gets our answer.
 */
const LIBRARY_SETTINGS = { UWS_HTTP_MAX_HEADERS_SIZE: `${2 * REQUEST_HEADER_BYTES_MAX}` };

type Worker = {
  process: ChildProcess;
  startedAt: number;
  heardAt: number;
  /**
   * When the worker last answered a request for its process metrics. Beats that it sends unasked do
   * not count.
   */
  answeredAt: number;
  /** Whether the worker has sent a message, which shows that its event loop runs. */
  hasSpoken: boolean;
  readiness: Readiness | undefined;
  snapshot: MetricsSnapshot;
  /** The worker's number in the metrics: the lowest that no living sibling has. */
  number: number;
  /** CPU, memory and the like of the process, as of the primary's last request for them. */
  ofProcess: MetricsSnapshot;
  /** The worker's busiest projects, as of the admin page's last request for them. */
  projects: ProjectRow[];
};

type WorkerPoolOptions = {
  program: URL;
  /** The environment of the workers; default: that of this process. */
  env?: NodeJS.ProcessEnv | undefined;
  count: number;
  log: Log;
  onRequests(lines: RequestLines): void;
};

/**
 * Keeps `count` workers alive.
 *
 * A worker that dies is started again, after a pause that doubles from RESTART_MS_MIN up to
 * RESTART_MS_MAX while workers die soon after their start. A worker whose event loop hangs is
 * killed after WORKER_SILENT_MS_MAX, because the kernel would go on giving that worker new
 * connections. A worker that has sent no message yet has START_MS_MAX instead.
 *
 * The primary may stand still itself: stopped, starved of CPU, or on a suspended machine. When it
 * wakes up, its timers run before it reads the workers' messages, and every worker seems silent. So
 * the first check after a standstill counts every worker as heard from just now.
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
   * Whether the pool was complete once: all workers were ready at the same time, or START_MS_MAX
   * had passed and at least one was ready.
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

  /** Readiness as in each worker's last beat; undefined for a worker that has sent none yet. */
  get readiness(): (Readiness | undefined)[] {
    return [...this.#workers].map((worker) => worker.readiness);
  }

  /**
   * Busiest projects of each living worker, as of the last {@link snapshots} that asked for them.
   */
  get projects(): ProjectRow[][] {
    return [...this.#workers].map((worker) => worker.projects);
  }

  /**
   * Asks every living worker for fresh metrics, waits at most `waitMs` for the answers, and returns
   * them together with those metrics of dead workers that are kept (counters and histograms). A
   * worker that is late contributes its previous snapshot.
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

  /**
   * Asks every worker to stop, kills those that still run after STOP_MS_MAX, and resolves when all
   * have ended.
   */
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
    const { program, env } = this.#options;
    const child = fork(program, {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      env: childEnvironment({ ...LIBRARY_SETTINGS, UV_THREADPOOL_SIZE: `${POOL_THREADS}` }, env),
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
      // A process that the system could not start never emits `exit`.
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
      if (message.snapshot) worker.snapshot = message.snapshot;
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
        // A start may fail, for example when memory is short. The other workers go on.
        this.#options.log.error({ err: error, againInMs: this.#backOffMs }, 'no worker can be started');
        this.#startLater();
      }
    }, this.#backOffMs);
    this.#backOffMs = Math.min(this.#backOffMs * 2, RESTART_MS_MAX);
  }

  /**
   * Sums the metrics of dead workers into one snapshot, so that a worker that dies again and again
   * for a week costs no memory.
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
