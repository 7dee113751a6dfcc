/** An application with an unmodified SDK, told what to do one step at a time. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import type { Browser, Page, Request } from 'playwright-core';
import { build, type Rollup } from 'vite';
import { openBrowser } from '../support/browser.ts';
import { until } from '../support/system.ts';

export type Step =
  | { readonly do: 'exception' | 'message' | 'log'; readonly text: string }
  | { readonly do: 'trace'; readonly name: string; readonly child: string }
  | typeof FLUSH;
/** Answered when the SDK has sent all that it has. */
export const FLUSH = { do: 'flush' } as const;
/** What the SDK returned: the id of an event, or of a trace. */
export type Answer = { readonly id?: string; readonly trace?: string };

export interface Client {
  /** Steps between two flushes. */
  readonly atOnceMax: number;
  step(step: Step): Promise<Answer>;
  close(): Promise<void>;
}

/** A program that reads a step a line and prints an answer a line. */
export class Program implements Client {
  readonly atOnceMax = Number.POSITIVE_INFINITY;
  readonly #child: ChildProcess;
  readonly #answers: AsyncIterator<string>;
  readonly #exited: Promise<void>;
  #errors = '';

  constructor(command: readonly string[], env: Record<string, string>) {
    const [program = '', ...args] = command;
    this.#child = spawn(program, args, { env: { ...process.env, ...env }, stdio: 'pipe' });
    this.#exited = new Promise((resolve) => this.#child.once('close', () => resolve()));
    this.#child.once('error', (error) => {
      this.#errors += error.message;
    });
    // A program that died says so by its missing answer.
    this.#child.stdin?.on('error', () => undefined);
    this.#child.stderr?.on('data', (data: Buffer) => {
      this.#errors += data.toString();
    });
    this.#answers = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream })[
      Symbol.asyncIterator
    ]();
  }

  async step(step: Step): Promise<Answer> {
    this.#child.stdin?.write(`${JSON.stringify(step)}\n`);
    const { value, done } = await this.#answers.next();
    if (done) throw new Error(`${this.#child.spawnfile} ended: ${this.#errors}`);
    return JSON.parse(value) as Answer;
  }

  async close(): Promise<void> {
    this.#child.stdin?.end();
    await this.#exited;
  }
}

/**
 * Chromium lets requests with `keepalive` be under way for 64 KiB in all, heads included. It fails
 * the next one, and the SDK drops that event, of which no server hears. So a page sends one event
 * at a time, and a flush waits until its request has ended.
 */
class OpenPage implements Client {
  readonly atOnceMax = 1;
  readonly #page: Page;
  readonly #underWay = new Set<Request>();

  constructor(page: Page) {
    this.#page = page;
    page.on('request', (request) => this.#underWay.add(request));
    page.on('requestfinished', (request) => this.#underWay.delete(request));
    page.on('requestfailed', (request) => this.#underWay.delete(request));
  }

  async step(step: Step): Promise<Answer> {
    const answer = await this.#page.evaluate<Answer>(`window.step(${JSON.stringify(step)})`);
    if (step.do === 'flush') await until(() => this.#underWay.size === 0);
    return answer;
  }

  close(): Promise<void> {
    return this.#page.close();
  }
}

/** A program that sends one message and ends. */
export class OneShot implements Client {
  readonly atOnceMax = 1;
  readonly #command: readonly string[];
  readonly #env: Record<string, string>;

  constructor(command: readonly string[], env: Record<string, string>) {
    this.#command = command;
    this.#env = env;
  }

  async step(step: Step): Promise<Answer> {
    if (step.do !== 'message') return {};
    const [program = '', ...args] = this.#command;
    const env = { ...process.env, ...this.#env };
    const ended = promisify(execFile)(program, [...args, step.text], { env });
    const { stdout } = await ended.catch((error: Error) => {
      if (error.message.includes('http status: 429')) return { stdout: '' };
      throw error;
    });
    return {
      id: /[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}/.exec(stdout)?.[0].replaceAll('-', '') ?? '',
    };
  }

  async close(): Promise<void> {
    // It has ended.
  }
}

/** Headless Chromium and a site of another origin, whose pages have an SDK each. */
export class Pages {
  readonly #browser: Browser;
  readonly #site: Server;
  /** By path of what a page runs. */
  readonly #scripts: Map<string, Promise<string>>;

  private constructor(browser: Browser, site: Server, scripts: Map<string, Promise<string>>) {
    this.#browser = browser;
    this.#site = site;
    this.#scripts = scripts;
  }

  static async start(): Promise<Pages> {
    const scripts = new Map<string, Promise<string>>();
    const site = createServer(async (req, res) => {
      const { pathname, searchParams } = new URL(req.url ?? '/', 'http://site');
      const entry = searchParams.get('script') ?? '';
      if (pathname === '/client.js')
        res.writeHead(200, { 'content-type': 'text/javascript' }).end(await scripts.get(entry));
      else
        res
          .writeHead(200, { 'content-type': 'text/html' })
          .end(
            `<!doctype html><title>shop</title><body><script src="/client.js${req.url?.slice(1)}"></script>`,
          );
    });
    await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve));
    return new Pages(await openBrowser(), site, scripts);
  }

  /** @param script the path of what the page runs */
  async open(script: string, dsn: string, lifecycle = ''): Promise<Client> {
    const bundled = this.#scripts.get(script) ?? bundle(script);
    this.#scripts.set(script, bundled);
    // It may take longer than a page waits for.
    await bundled;
    const page = await this.#browser.newPage();
    const { port } = this.#site.address() as AddressInfo;
    await page.goto(`http://127.0.0.1:${port}/?${new URLSearchParams({ script, dsn, lifecycle })}`);
    return new OpenPage(page);
  }

  async close(): Promise<void> {
    await this.#browser.close();
    this.#site.close();
  }
}

async function bundle(entry: string): Promise<string> {
  const lib = { entry, formats: ['iife' as const], name: 'client' };
  const built = await build({
    configFile: false,
    logLevel: 'silent',
    define: { 'process.env.NODE_ENV': '"production"' },
    build: { write: false, minify: false, lib },
  });
  return (built as Rollup.RollupOutput[])[0]?.output[0].code ?? '';
}
