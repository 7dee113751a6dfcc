/** The exporters of OpenTelemetry that take part: how each program is built and started, which version is pinned. */
import { cargo, HERE, maven, OUT, PYTHON, type Sdk } from '../sdks.ts';

export type Exporter = {
  readonly title: string;
  readonly sdk: Sdk;
  readonly command: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** It has nothing but a DSN: the SDK derives address and key, and sends no logs. */
  readonly byDsn?: true;
};

const FOLDER = `${HERE}otlp/`;
const NPM = `${OUT}otlp-npm`;

const exporter = (
  language: string,
  name: string,
  sdk: Pick<Sdk, 'manifest' | 'pinned' | 'toolchain' | 'apt' | 'build'>,
): Sdk => ({
  ...sdk,
  language,
  family: language === 'Node' ? 'javascript' : language.toLowerCase(),
  package: name,
  name,
  manifest: `test/clients/otlp/${sdk.manifest}`,
});

const npm = (name: string): Sdk =>
  exporter('Node', name, {
    manifest: 'npm/package.json',
    pinned: new RegExp(`"${name}": "([\\d.]+)"`),
    toolchain: [],
    build: [
      ['mkdir', '-p', NPM],
      ['cp', '-R', `${FOLDER}npm/.`, NPM],
      ['npm', 'install', '--prefix', NPM, '--no-audit', '--no-fund', '--no-package-lock', '--loglevel=error'],
    ],
  });
const VENV = `${OUT}otlp-python`;
const pip = (name: string): Sdk =>
  exporter('Python', name.replace(/\[.*/, ''), {
    manifest: 'requirements.txt',
    pinned: new RegExp(`^${name.replace(/[[\]]/g, '\\$&')}==([\\d.]+)$`, 'm'),
    toolchain: PYTHON.toolchain,
    apt: PYTHON.apt ?? [],
    build: [
      ['python3', '-m', 'venv', VENV],
      [`${VENV}/bin/pip`, 'install', '--quiet', '-r', `${FOLDER}requirements.txt`],
    ],
  });
const GO = exporter('Go', 'go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp', {
  manifest: 'go/go.mod',
  pinned: /otlptracehttp v([\d.]+)$/m,
  toolchain: [['go', 'version']],
  build: [['go', 'build', '-C', `${FOLDER}go`, '-o', `${OUT}otlp-go/client`, '.']],
});
const JAVA = exporter('Java', 'io.opentelemetry:opentelemetry-exporter-otlp', {
  manifest: 'java/pom.xml',
  pinned: /<artifactId>opentelemetry-exporter-otlp<\/artifactId>\s*<version>([\d.]+)</,
  toolchain: [
    ['javac', '-version'],
    ['mvn', '-version'],
  ],
  build: maven(`${FOLDER}java`, { out: `${OUT}otlp-java`, program: 'OtlpClient.java' }),
});
const RUST = exporter('Rust', 'opentelemetry-otlp', {
  manifest: 'rust/Cargo.toml',
  pinned: /^opentelemetry-otlp = "=([\d.]+)"$/m,
  toolchain: [['cargo', '--version']],
  build: cargo(`${FOLDER}rust`, `${OUT}otlp-rust`),
});

const NODE = [process.execPath, `${NPM}/client.mjs`];
const PY = [`${VENV}/bin/python`, `${FOLDER}client.py`];

export const EXPORTERS: readonly Exporter[] = [
  { title: 'Node, protobuf', sdk: npm('@opentelemetry/exporter-trace-otlp-proto'), command: NODE },
  {
    title: 'Node, JSON',
    sdk: npm('@opentelemetry/exporter-trace-otlp-http'),
    command: NODE,
    env: { ENCODING: 'json' },
  },
  { title: 'Python', sdk: pip('opentelemetry-exporter-otlp-proto-http'), command: PY },
  { title: 'Go', sdk: GO, command: [`${OUT}otlp-go/client`] },
  { title: 'Java', sdk: JAVA, command: ['java', '-cp', `${OUT}otlp-java:${OUT}otlp-java/*`, 'OtlpClient'] },
  { title: 'Rust', sdk: RUST, command: [`${OUT}otlp-rust/debug/otlp`] },
  { title: 'Sentry for Node', sdk: npm('@sentry/node'), command: NODE, byDsn: true },
  { title: 'Sentry for Python', sdk: pip('sentry-sdk[opentelemetry-otlp]'), command: PY, byDsn: true },
];

/** Python's exporter by gRPC, which only a Collector takes. */
export const GRPC: Exporter = {
  title: 'Python, gRPC',
  sdk: pip('opentelemetry-exporter-otlp-proto-grpc'),
  command: PY,
  env: { PROTOCOL: 'grpc' },
};

/** A Collector with the components that deploy/otel-collector.yaml names. */
export const COLLECTOR: Pick<Exporter, 'sdk' | 'command'> = {
  sdk: {
    ...GO,
    package: 'go.opentelemetry.io/collector',
    family: 'collector',
    manifest: 'test/clients/otlp/collector/go.mod',
    pinned: /otelcol v([\d.]+)$/m,
    build: [['go', 'build', '-C', `${FOLDER}collector`, '-o', `${OUT}otlp-collector/otelcol`, '.']],
  },
  command: [`${OUT}otlp-collector/otelcol`],
};
