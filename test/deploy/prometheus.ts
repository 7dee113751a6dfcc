/** Prometheus and promtool: those of the machine, else Debian's package, unpacked beside us without being installed. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { until } from '../support/system.ts';
import { unpackPackages } from './debian-programs.ts';

export type Prometheus = { prometheus: string; promtool: string };

const runs = (program: string): boolean =>
  spawnSync(program, ['--version'], { stdio: 'ignore' }).status === 0;

/** Debian 12 has promtool in Prometheus's own package, Debian 13 in one of its name. */
const PACKAGES = ['prometheus', 'promtool'];

function unpacked(): string | undefined {
  const folder = join(tmpdir(), 'sluice-prometheus-package');
  const bin = join(folder, 'usr/bin');
  const complete = (): boolean => PACKAGES.every((program) => existsSync(join(bin, program)));
  if (!complete() && existsSync('/usr/bin/apt-get')) unpackPackages(folder, PACKAGES);
  return complete() ? bin : undefined;
}

/** Undefined on a machine that has neither Prometheus nor apt. */
export function findPrometheus(): Prometheus | undefined {
  if (runs('prometheus') && runs('promtool')) return { prometheus: 'prometheus', promtool: 'promtool' };
  const bin = unpacked();
  return bin ? { prometheus: join(bin, 'prometheus'), promtool: join(bin, 'promtool') } : undefined;
}

/** What one job scrapes: a port of this machine, or several with the labels of their cells. */
export type Targets = number | readonly { port: number; labels: Readonly<Record<string, string>> }[];

export type Sample = { metric: Record<string, string>; value: [time: number, text: string] };

/** One that scrapes and evaluates every second; gone with its folder afterwards. */
export class RunningPrometheus {
  readonly #child: ChildProcess;
  readonly #dir: string;
  readonly #url: string;

  private constructor(child: ChildProcess, dir: string, url: string) {
    this.#child = child;
    this.#dir = dir;
    this.#url = url;
  }

  static async start(
    { prometheus }: Prometheus,
    options: { rules: string; jobs: Readonly<Record<string, Targets>> },
  ): Promise<RunningPrometheus> {
    const dir = temporaryFolder('prometheus');
    const port = await lastingPort();
    const jobs = Object.entries(options.jobs).map(([job_name, targets]) => ({
      job_name,
      static_configs: (typeof targets === 'number' ? [{ port: targets, labels: {} }] : targets).map(
        ({ port: admin, labels }) => ({ targets: [`127.0.0.1:${admin}`], labels }),
      ),
    }));
    const config = {
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: [options.rules],
      scrape_configs: jobs,
    };
    writeFileSync(join(dir, 'prometheus.yml'), JSON.stringify(config));
    const args = [
      `--config.file=${join(dir, 'prometheus.yml')}`,
      `--storage.tsdb.path=${join(dir, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
    ];
    const child = spawn(prometheus, args, { stdio: 'ignore' });
    const running = new RunningPrometheus(child, dir, `http://127.0.0.1:${port}`);
    await until(async () => (await fetch(`${running.#url}/-/ready`).catch(() => undefined))?.ok ?? false);
    return running;
  }

  async #ask<T>(path: string): Promise<T> {
    const answer = (await (await fetch(`${this.#url}/api/v1/${path}`)).json()) as {
      status: string;
      error?: string;
      data: T;
    };
    if (answer.status !== 'success') throw new Error(`${path}: ${answer.error}`);
    return answer.data;
  }

  /** @throws with Prometheus' own words when the query is wrong */
  async query(promql: string): Promise<Sample[]> {
    const { result } = await this.#ask<{ result: Sample[] }>(`query?query=${encodeURIComponent(promql)}`);
    return result;
  }

  async rules(): Promise<
    { name: string; type: string; health: string; state?: string; lastError?: string }[]
  > {
    const { groups } = await this.#ask<{ groups: { rules: never[] }[] }>('rules');
    return groups.flatMap(({ rules }) => rules);
  }

  async stop(): Promise<void> {
    const gone = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.kill('SIGTERM');
    await gone;
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
