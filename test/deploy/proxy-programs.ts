/** nginx, HAProxy and Envoy with the files of deploy/proxies. Only addresses and folders are other ones. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { lastingPort, temporaryFolder } from '../support/servers.ts';
import { until } from '../support/system.ts';
import { makeCertificates } from './certificates.ts';
import { findProgram, type Program } from './debian-programs.ts';
import { findEnvoy } from './envoy-program.ts';

const DEPLOY = new URL('../../deploy/proxies', import.meta.url).pathname;

/** Ports of an ingest on this machine. */
export type Member = { port: number; adminPort: number };
type Ports = { http: number; https: number; members: readonly Member[] };

type Kind = {
  name: string;
  file: string;
  find(): Program | undefined;
  buffered: (text: string, on: boolean) => string;
  /** Finds what the file says of its second member. */
  second: RegExp;
  /** The file with these ports, as the program takes it in `dir`. */
  place(text: string, dir: string, ports: Ports): string;
  args(file: string, dir: string): string[];
};
export type ProxyKind = Kind & { program: Program };

const addressOf = (at: number, port: number): string => `10.0.0.${at + 1}:${port}`;

const KINDS: readonly Kind[] = [
  {
    name: 'nginx',
    file: 'nginx.conf',
    find: () => findProgram('nginx', ['nginx', 'libpcre2-8-0', 'libssl3']),
    buffered: (text, on) =>
      text.replace('proxy_request_buffering on', `proxy_request_buffering ${on ? 'on' : 'off'}`),
    second: /^.*10\.0\.0\.2:.*\n/gm,
    place: (text, dir, { http, https, members }) => {
      const folders = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
        (what) => `${what}_temp_path ${join(dir, what)};`,
      );
      let own = text
        .replace('listen 80;', `listen 127.0.0.1:${http};`)
        .replace('listen 443', `listen 127.0.0.1:${https}`)
        .replaceAll('/etc/nginx/tls', dir);
      for (const [at, { port }] of members.entries())
        own = own.replaceAll(addressOf(at, 8080), `127.0.0.1:${port}`);
      const user = process.getuid?.() === 0 ? 'user root;\n' : '';
      const frame = `${user}daemon off;\npid ${join(dir, 'pid')};\nerror_log ${join(dir, 'errors')};\nevents {}\n`;
      return `${frame}http {\naccess_log off;\n${folders.join('\n')}\n${own}\n}\n`;
    },
    args: (file, dir) => ['-p', dir, '-c', file],
  },
  {
    name: 'haproxy',
    file: 'haproxy.cfg',
    find: () =>
      findProgram('haproxy', [
        'haproxy',
        'liblua5.3-0',
        'libopentracing-c-wrapper0',
        'libopentracing1',
        'libpcre2-8-0',
        'libssl3',
      ]),
    buffered: (text, on) =>
      on ? text.replace('# option http-buffer-request', 'option http-buffer-request') : text,
    second: /^.*10\.0\.0\.2:.*\n/gm,
    place: (text, dir, { http, https, members }) => {
      let own = text
        .replace('bind :80\n', `bind 127.0.0.1:${http}\n`)
        .replace('bind :443', `bind 127.0.0.1:${https}`)
        .replaceAll('/etc/haproxy/tls', dir);
      for (const [at, { port, adminPort }] of members.entries())
        own = own.replace(`${addressOf(at, 8080)} port 8081`, `127.0.0.1:${port} port ${adminPort}`);
      return own;
    },
    args: (file) => ['-db', '-f', file],
  },
  {
    name: 'envoy',
    file: 'envoy.yaml',
    find: findEnvoy,
    buffered: (text, on) => (on ? text.replace(/# (?=- name: | {2})/g, '') : text),
    second: / *- endpoint:\n *address: .*10\.0\.0\.2.*\n.*\n/g,
    place: (text, dir, { http, https, members }) => {
      let own = text
        .replace('0.0.0.0, port_value: 80 ', `127.0.0.1, port_value: ${http} `)
        .replace('0.0.0.0, port_value: 443 ', `127.0.0.1, port_value: ${https} `)
        .replaceAll('/etc/envoy/tls', dir);
      for (const [at, { port, adminPort }] of members.entries())
        own = own
          .replace(`10.0.0.${at + 1}, port_value: 8080`, `127.0.0.1, port_value: ${port}`)
          .replace('port_value: 8081', `port_value: ${adminPort}`);
      return own;
    },
    args: (file) => ['-c', file, '--log-level', 'critical', '--disable-hot-restart', '--concurrency', '1'],
  },
];

/** Says aloud which proxy this machine has no program of. */
export const PROXIES: readonly ProxyKind[] = KINDS.flatMap((kind) => {
  const program = kind.find();
  if (!program) process.stderr.write(`\n!!! ${kind.name} IS LEFT OUT: its program is not found\n`);
  return program ? [{ ...kind, program }] : [];
});

export class RunningProxy {
  readonly port: number;
  readonly httpsPort: number;
  /** Holds ca.crt, the authority of its certificate. */
  readonly dir: string;
  readonly #child: ChildProcess;

  private constructor(ports: Ports, dir: string, child: ChildProcess) {
    this.port = ports.http;
    this.httpsPort = ports.https;
    this.dir = dir;
    this.#child = child;
  }

  /** In front of one or two members. */
  static async start(kind: ProxyKind, members: readonly Member[], buffers = true): Promise<RunningProxy> {
    const dir = temporaryFolder(kind.name);
    makeCertificates(dir);
    const [certificate, key] = ['tls.crt', 'tls.key'].map((name) => readFileSync(join(dir, name), 'utf8'));
    writeFileSync(join(dir, 'sluice.crt'), certificate ?? '');
    writeFileSync(join(dir, 'sluice.key'), key ?? '');
    writeFileSync(join(dir, 'sluice.pem'), `${certificate}${key}`);
    const ports = { http: await lastingPort(), https: await lastingPort(), members };
    const text = kind.buffered(readFileSync(join(DEPLOY, kind.file), 'utf8'), buffers);
    const file = join(dir, kind.file);
    mkdirSync(join(dir, 'logs'));
    writeFileSync(file, kind.place(members.length > 1 ? text : text.replaceAll(kind.second, ''), dir, ports));
    const { path, env } = kind.program;
    const child = spawn(path, kind.args(file, dir), {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    const running = new RunningProxy(ports, dir, child);
    const serves = (): Promise<boolean> => {
      if (child.exitCode !== null) throw new Error(`${kind.name} ended at its start`);
      return fetch(`http://127.0.0.1:${ports.http}/healthz`).then(
        (res) => res.ok,
        () => false,
      );
    };
    await until(serves);
    return running;
  }

  async stop(): Promise<void> {
    this.#child.kill('SIGTERM');
    await once(this.#child, 'exit');
    rmSync(this.dir, { recursive: true, force: true });
  }
}
