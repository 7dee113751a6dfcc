/**
 * ClickHouse's engine (the package chdb) behind the part of the server's HTTP interface that @clickhouse/client uses:
 *
 *     node chdb-server.mjs <folder of node_modules> <folder of ours> <data folder> <port> <password>
 *
 * What is the engine's own: SQL, tables, merges, formats, errors. What is ours: HTTP, users, compression, and faults on demand, which the
 * parent names in a message: {fault: 'read-only' | 'full' | 'quoting' | 'garbled' | 'cut' | 'slow' | undefined}. They strike at inserts. Ends with its parent.
 *
 * Statements run one after the other, but for those to /aside: each has a session of its own, and runs beside all others.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import * as zlib from 'node:zlib';

const [, , modules, dir, data, port, password] = process.argv;
const { Session } = createRequire(join(modules, 'x.js'))('chdb');
const inserts = join(dir, 'inserts');
mkdirSync(inserts, { recursive: true });
const session = new Session(data);

let fault;
let files = 0;
/** Inserts that wait for the end of a fault. */
const waiting = [];
process.on('message', (message) => {
  fault = message.fault;
  for (const go of waiting.splice(0)) go();
  process.send({ fault: fault ?? null });
});
process.on('disconnect', () => process.exit(0));

const FAULTS = {
  'read-only': 'Code: 242. DB::Exception: Table is in readonly mode. (TABLE_IS_READ_ONLY)',
  full: 'Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space. (NOT_ENOUGH_SPACE)',
  quoting: 'Code: 1002. DB::Exception: {"n":"[refuse me]"} is something new. (UNKNOWN_EXCEPTION)',
  garbled: '<html>{"n":"[refuse me]"}</html>',
};

async function insert(sql, body) {
  const file = join(inserts, `${++files}.bin`);
  writeFileSync(file, body);
  try {
    // The rows of a request are a file here, also where a filter reads them.
    const filtered = sql.replace(' FROM input(', ` FROM file('${file}', 'RowBinary', `);
    if (filtered !== sql) await session.queryAsync(filtered.replace(/ FORMAT RowBinary$/, ''));
    else await session.queryAsync(sql.replace(' SETTINGS ', ` FROM INFILE '${file}' SETTINGS `));
  } finally {
    rmSync(file);
  }
  return '';
}

async function answer(sql, { body, params, isAside }) {
  if (body.length > 0) return insert(sql, body);
  const bound = Object.keys(params).length > 0;
  const own = isAside ? new Session(data) : session;
  const result = bound ? await own.queryBindAsync(sql, params) : await own.queryAsync(sql);
  return result.bytes();
}

function credentialsOf({ headers }) {
  if (headers.authorization?.startsWith('Basic '))
    return Buffer.from(headers.authorization.slice(6), 'base64').toString().split(':')[1];
  return headers['x-clickhouse-key'] ?? '';
}

function refuse(response, message) {
  const text = message.replace(/^Code: \d+\. DB::Exception: (?=Code: )/, '');
  const code = /^Code: (\d+)/.exec(text)?.[1] ?? '1001';
  response.writeHead(code === '516' ? 403 : 500, { 'x-clickhouse-exception-code': code }).end(`${text}\n`);
}

createServer(async (request, response) => {
  try {
    const { pathname, searchParams } = new URL(request.url, 'http://server');
    let body = await buffer(request);
    const encoding = request.headers['content-encoding'];
    if (encoding === 'gzip') body = zlib.gunzipSync(body);
    if (encoding === 'zstd') body = zlib.zstdDecompressSync(body);
    if (pathname === '/ping') return response.end('Ok.\n');
    if (credentialsOf(request) !== password)
      return refuse(
        response,
        'Code: 516. DB::Exception: default: Authentication failed. (AUTHENTICATION_FAILED)',
      );
    const inUrl = searchParams.get('query');
    const isInsert = inUrl !== null;
    if (isInsert && FAULTS[fault]) return refuse(response, FAULTS[fault]);
    if (isInsert && fault === 'slow') await new Promise((go) => waiting.push(go));
    const params = Object.fromEntries(
      [...searchParams]
        .filter(([name]) => name.startsWith('param_'))
        .map(([name, value]) => [name.slice(6), value]),
    );
    const bytes = await answer(inUrl ?? body.toString(), {
      body: isInsert ? body : '',
      params,
      isAside: pathname === '/aside',
    });
    if (isInsert && fault === 'cut') return request.socket.destroy();
    response.end(bytes);
  } catch (error) {
    refuse(response, error.message);
  }
}).listen(Number(port), '127.0.0.1', () => process.send({ listening: true }));
