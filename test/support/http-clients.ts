/** HTTP clients of several languages as programs: what their users see of an answer that comes before the body was read. */
import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const FOLDER = new URL('./clients/', import.meta.url).pathname;

/** The body is `start` and then as many `x` as `bytes` says. */
export type Job = { port: number; path: string; start: string; bytes: number; chunked: boolean };
/** Status and body of each answer; a client that saw a reset or a broken pipe fails instead. */
export type Answers = [status: number, body: string][];
export type HttpClient = { name: string; post(job: Job): Promise<Answers> };

async function answersOf(program: string, args: string[]): Promise<Answers> {
  const { stdout } = await run(program, args, { timeout: 30_000 });
  return JSON.parse(stdout) as Answers;
}

const works = (program: string, ...args: string[]): boolean =>
  spawnSync(program, args, { stdio: 'ignore' }).status === 0;

/** curl writes the bodies, each followed by its status on a line. */
async function curl(version: string, { port, path, start, bytes, chunked }: Job): Promise<Answers> {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-curl-'));
  try {
    const file = join(dir, 'body');
    writeFileSync(file, start + 'x'.repeat(bytes));
    const url = `http://127.0.0.1:${port}${path}`;
    const one = [
      '-sS',
      version,
      '--max-time',
      '25',
      '--data-binary',
      `@${file}`,
      '-w',
      '\n%{http_code}\n',
      url,
    ];
    if (chunked) one.push('-H', 'Transfer-Encoding: chunked');
    const { stdout } = await run('curl', [...one, '--next', ...one]);
    const lines = stdout.trimEnd().split('\n');
    return [0, 2].map((at) => [Number(lines[at + 1]), lines[at] ?? '']);
  } finally {
    rmSync(dir, { recursive: true });
  }
}

function compiledGo(): string | undefined {
  if (!works('go', 'version')) return undefined;
  const program = join(tmpdir(), `sluice-post-go-${process.pid}`);
  return works('go', 'build', '-o', program, join(FOLDER, 'post.go')) ? program : undefined;
}

/** Those that this machine has: fetch and curl always, Python and Go where they are installed. Call `close` after use. */
export function httpClients(): { clients: HttpClient[]; close(): void } {
  const clients: HttpClient[] = [
    {
      name: 'fetch of Node',
      post: (job) => answersOf(process.execPath, [join(FOLDER, 'post.mjs'), JSON.stringify(job)]),
    },
    { name: 'curl', post: (job) => curl('--http1.1', job) },
  ];
  if (works('python3', '--version')) {
    const python = (alone: boolean) => (job: Job) =>
      answersOf('python3', [join(FOLDER, 'post.py'), JSON.stringify({ ...job, alone })]);
    clients.push({ name: 'http.client of Python', post: python(false) });
    clients.push({ name: 'urllib of Python', post: python(true) });
  }
  const go = compiledGo();
  if (go) clients.push({ name: 'net/http of Go', post: (job) => answersOf(go, [JSON.stringify(job)]) });
  return { clients, close: () => go && rmSync(go, { force: true }) };
}
