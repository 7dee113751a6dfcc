/** The image, as `npm run test:image` has just built it. */
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../src/commands/dev/servers.ts';
import { createLog } from '../../src/lib/log.ts';
import { ProjectStore } from '../../src/projects/project-store.ts';
import { NatsLink } from '../../src/stream/nats.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { natsServer, redisServer, type TestServer, temporaryFolder } from '../support/servers.ts';
import { MIB, until } from '../support/system.ts';

const IMAGE = 'sluice:local';
const ABOVE_BASE_MAX = 120 * 1_000_000;

const docker = (...args: string[]): string =>
  execFileSync('docker', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();

/** As the composition and Kubernetes run it: nothing but the mounts can be written. */
const CONFINED = ['--read-only', '--cap-drop=ALL', '--security-opt=no-new-privileges', '--network=host'];

describe('the image', () => {
  let redis: TestServer;
  let nats: TestServer;
  let dir: string;
  let settings: Record<string, string>;
  const containers: string[] = [];

  const flags = (env: Record<string, string>): string[] =>
    Object.entries(env).flatMap(([name, value]) => ['-e', `${name}=${value}`]);
  function start(command: string, env: Record<string, string>, ...mounts: string[]): string {
    const id = docker('run', '-d', ...CONFINED, ...mounts, ...flags({ ...settings, ...env }), IMAGE, command);
    containers.push(id);
    return id;
  }
  const exitCode = (id: string): string => docker('inspect', '--format', '{{.State.ExitCode}}', id);

  beforeAll(async () => {
    [redis, nats] = await Promise.all([redisServer(), natsServer()]);
    dir = temporaryFolder('image');
    mkdirSync(join(dir, 'sink'));
    chmodSync(join(dir, 'sink'), 0o777); // the container is another user
    settings = {
      SLUICE_REDIS_URL: redis.url,
      SLUICE_NATS_URL: nats.url,
      SLUICE_STREAM_MAX_BYTES: `${64 * MIB}`,
      SLUICE_WORKERS: '1',
    };
  });
  afterAll(async () => {
    for (const id of containers) docker('rm', '-f', '-v', id);
    await Promise.all([redis?.close(), nats?.close()]);
    rmSync(dir, { recursive: true, force: true });
  });

  it('is at most 120 MB above its base and carries one binary of uWebSockets.js', () => {
    const layers = docker('history', '--format', '{{.Size}}\t{{.CreatedBy}}', '--human=false', IMAGE).split(
      '\n',
    );
    // Everything down to the first layer of our own; the base's lie below.
    const own = layers.findIndex((line) => line.includes('NODE_ENV'));
    const bytes = layers.slice(0, own).reduce((sum, line) => sum + Number(line.split('\t')[0]), 0);
    expect(own).toBeGreaterThan(3);
    expect(bytes).toBeGreaterThan(MIB);
    expect(bytes).toBeLessThan(ABOVE_BASE_MAX);
    const files = docker('run', '--rm', '--entrypoint', 'ls', IMAGE, '/app/node_modules/uWebSockets.js');
    expect(files.split('\n').filter((name) => name.endsWith('.node'))).toHaveLength(1);
  });

  it('has the load tester', () => {
    expect(docker('run', '--rm', ...CONFINED, IMAGE, 'load', '--help')).toContain('--stages');
    const args = ['run', '--rm', ...CONFINED, IMAGE, 'load', '--dsn', 'http://k@127.0.0.1:9/1'];
    const ran = spawnSync('docker', [...args, '--duration', '500ms', '--quiet'], { encoding: 'utf8' });
    expect(ran.stderr).toContain('FAILED: no request was answered');
    expect(ran.status).toBe(1);
  });

  it('runs every part as an ordinary user over a file system that it cannot write, and leaves on SIGTERM', async () => {
    docker('run', '--rm', ...CONFINED, ...flags(settings), IMAGE, 'setup');
    const [port, adminPort, processorPort] = [await freePort(), await freePort(), await freePort()];
    const ports = { SLUICE_PORT: `${port}`, SLUICE_ADMIN_PORT: `${adminPort}` };
    const ingest = start('ingest', ports, '-v', '/var/spool/sluice');
    const sink = { SLUICE_SINK: 'ndjson:/var/lib/sluice/sink', SLUICE_ADMIN_PORT: `${processorPort}` };
    const processor = start('processor', sink, '-v', `${join(dir, 'sink')}:/var/lib/sluice/sink`);
    const link = await NatsLink.connect({ urls: [nats.url], name: 'test', log: createLog('silent') });
    const project = await (await ProjectStore.open(link)).create({
      plan: 'Platform',
      overage: false,
      filters: [],
      allowedOrigins: [],
    });
    await link.close();
    const url = `http://127.0.0.1:${port}/api/${project.id}/envelope/?compat_key=${project.key}`;
    const post = (message: string): Promise<Response | undefined> =>
      fetch(url, { method: 'POST', body: errorEvent(eventId(), message) }).catch(() => undefined);
    await until(async () => (await post('small'))?.ok ?? false);
    expect((await post('x'.repeat(3 * MIB)))?.status).toBe(200); // by way of the spool
    await until(() =>
      readdirSync(join(dir, 'sink'), { recursive: true }).some((name) => `${name}`.endsWith('.ndjson')),
    );
    expect(docker('exec', ingest, 'id', '-u')).toBe('1000');
    expect(spawnSync('docker', ['exec', ingest, 'touch', '/app/x']).status).not.toBe(0);
    const [, ...check] = JSON.parse(
      docker('inspect', '--format', '{{json .Config.Healthcheck.Test}}', ingest),
    ) as string[];
    for (const id of [ingest, processor]) {
      docker('exec', id, ...check);
      docker('stop', '-t', '40', id);
      expect(exitCode(id)).toBe('0');
    }
  });
});

type Component = { name: string; version?: string; purl?: string; type: string };

describe('the list of parts', () => {
  const list = (image: string): { status: number | null; parts: Component[]; problems: string[] } => {
    const { status, stdout, stderr } = spawnSync('node', ['.ci/sbom.js', image], {
      encoding: 'utf8',
      maxBuffer: 64 * MIB,
    });
    const { components } = JSON.parse(stdout) as { components: Component[] };
    return { status, parts: components, problems: stderr.match(/(?<=^differs: ).*/gm) ?? [] };
  };
  const nameAndVersion = ({ name, version }: Component): string => `${name} ${version}`;
  const dir = temporaryFolder('parts');
  afterAll(() => rmSync(dir, { recursive: true }));

  it('has what the files of the image show: the packages of Debian and of npm, and Node', () => {
    // By the layers, which another program reads than the list's: nothing runs in the container.
    const id = docker('create', IMAGE);
    const wanted = "--wildcards var/lib/dpkg/status '*/package.json'";
    execFileSync('sh', ['-c', `docker export ${id} | tar -x -C ${dir} ${wanted}`]);
    docker('rm', '-v', id);
    const debian = readFileSync(join(dir, 'var/lib/dpkg/status'), 'utf8')
      .split('\n\n')
      .filter((text) => text.includes('\nStatus: install ok installed\n'))
      .map((text) => `${/^Package: (.*)$/m.exec(text)?.[1]} ${/^Version: (.*)$/m.exec(text)?.[1]}`);
    const npm = readdirSync(dir, { recursive: true, encoding: 'utf8' })
      .filter((path) => /(^|\/)(node_modules\/(@[^/]+\/)?|opt\/yarn-)[^/@]+\/package\.json$/.test(path))
      .map((path) => nameAndVersion(JSON.parse(readFileSync(join(dir, path), 'utf8')) as Component));
    expect(debian.length).toBeGreaterThan(50);
    expect(npm.length).toBeGreaterThan(100);

    const { status, parts, problems } = list(IMAGE);
    expect([status, problems]).toEqual([0, []]);
    const listed = (purl: string): string[] =>
      parts
        .filter((part) => part.purl?.startsWith(purl))
        .map(nameAndVersion)
        .sort();
    expect(listed('pkg:deb/debian/')).toEqual(debian.sort());
    expect(listed('pkg:npm/')).toEqual(npm.sort());
    const node = docker('run', '--rm', '--entrypoint', 'node', IMAGE, '--version');
    expect(listed('pkg:generic/node@').map((text) => text.replace('node ', 'v'))).toEqual([node]);
    expect(parts.filter(({ type }) => type === 'file').map(({ name }) => name)).toEqual([
      expect.stringMatching(/^\/app\/node_modules\/uWebSockets\.js\/uws_linux_(x64|arm64)_\d+\.node$/),
    ]);
  });

  it('fails for an image that holds anything else, and names it', () => {
    const image = 'sluice:spoilt';
    const { devDependencies } = JSON.parse(readFileSync('package.json', 'utf8')) as {
      devDependencies: Record<string, string>;
    };
    const dockerfile = `FROM ${IMAGE}
USER 0
WORKDIR /app/node_modules
RUN mkdir other vitest && rm -r pino \\
 && echo '{"name":"other","version":"1.0.0"}' > other/package.json \\
 && echo '{"name":"vitest","version":"${devDependencies.vitest}"}' > vitest/package.json \\
 && sed -i 's/"version": "/"version": "9/' zod/package.json \\
 && for binary in uWebSockets.js/uws_*.node; do echo >> $binary; done \\
 && cp /usr/bin/ls /usr/local/bin/tool && cp /usr/bin/ls /var/lib/sluice/tool && touch /opt/something`;
    execFileSync('docker', ['build', '--quiet', '--tag', image, '-'], { input: dockerfile });
    const { status, problems } = list(image);
    docker('rmi', image);
    expect(status).toBe(1);
    expect(problems.sort()).toEqual([
      expect.stringMatching(
        /^\/app\/node_modules\/uWebSockets\.js\/uws_\w+\.node: a binary with an unknown hash/,
      ),
      '/opt/something belongs to no package',
      '/usr/local/bin/tool belongs to no package',
      '/var/lib/sluice/tool: a program of no package',
      'node_modules/pino is missing',
      'other 1.0.0 at /app/node_modules/other: not in package-lock.json',
      'vitest at /app/node_modules/vitest: only for development',
      expect.stringMatching(/^zod 9[\d.]+ at \/app\/node_modules\/zod: not in package-lock\.json$/),
    ]);
  });
});
