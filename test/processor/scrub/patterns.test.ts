/** What is private by its form, and what only looks like it. */
import { readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { SECRET_NAMES, SecretNames } from '../../../src/processor/scrub/names.ts';
import {
  withoutCards,
  withoutEmails,
  withoutIps,
  withoutSecrets,
} from '../../../src/processor/scrub/patterns.ts';

const F = '[Filtered]';
const same = (...texts: string[]): [string, string][] => texts.map((text) => [text, text]);

describe('an e-mail address', () => {
  it.each([
    ['bob@example.com', F],
    ['mail bob.o+tag@mail.example.co.uk, please', `mail ${F}, please`],
    ['<bob@example.com>', `<${F}>`],
    ['"bob@example.com" and alice@x.io.', `"${F}" and ${F}.`],
    ['https://x.io/?email=bob%40example.com&a=1', `https://x.io/?email=${F}&a=1`],
    ['mailto:bob@example.com?subject=x', `mailto:${F}?subject=x`],
    ['jürgen@münchen.de', F],
    ['bob@xn--mnchen-3ya.de', F],
    ['a@b.cc@d.ee', `${F}@d.ee`],
    ['bob@example.com.123', `${F}.123`],
    ['bob@example.com-', F],
    ...same(
      '',
      '@',
      'bob@',
      '@example.com',
      'bob@localhost',
      '@scope/package',
      'react@18.2.0',
      'a @ b.cc',
      '%40x.io',
    ),
  ])('%j becomes %j', (text, clean) => {
    expect(withoutEmails(text)).toBe(clean);
  });
});

describe('a payment card', () => {
  it.each([
    ['4242424242424242', F],
    ['card 4242 4242 4242 4242 12/29', `card ${F} 12/29`],
    ['4242-4242-4242-4242.', `${F}.`],
    ['card=4242+4242+4242+4242&x', `card=${F}&x`],
    ['378282246310005', F],
    ['30569309025904', F],
    ['5555555555554444,4111111111111111', `${F},${F}`],
    ['4111111111111111 5555555555554444', `${F} ${F}`],
    ['no. 12 4111 1111 1111 1111', `no. 12 ${F}`],
    ['6304000000000000000', F],
    ...same(
      '4242424242424241',
      '1790000000000',
      '1790000000123456',
      'a4242424242424242',
      '4242424242424242f',
      '12345678-1234-4123-abcd-0123456789ab',
      '0123456789abcdef4242424242424242',
      '424242424242',
      '2026-11-23 13:39:39.123456',
      '00000000-0000-0000-0000-000000000000',
    ),
  ])('%j becomes %j', (text, clean) => {
    expect(withoutCards(text)).toBe(clean);
  });
});

describe('an IP address', () => {
  it.each([
    ['203.0.113.7', F],
    ['from 203.0.113.7:8080.', `from ${F}:8080.`],
    ['http://10.0.0.1/a?b=127.0.0.1', `http://${F}/a?b=${F}`],
    ['192.168.001.001', F],
    ['2001:db8::1', F],
    ['[2001:db8::1]:443', `[${F}]:443`],
    ['::1', F],
    ['fe80::1%eth0', `${F}%eth0`],
    ['::ffff:203.0.113.7', F],
    ['2001:0db8:0000:0000:0000:ff00:0042:8329', F],
    ['dead:beef::cafe', F],
    ['client:2001:db8::1: refused', `client:${F}: refused`],
    ['node:2001:db8::1', `node:${F}`],
    ['at 2001:db8::1.', `at ${F}.`],
    ['1:2:3:4:5:6:7:8:8080', `${F}:8080`],
    ...same(
      '12:34:56',
      '2026-11-23T13:39:39.123Z',
      '1.2.3',
      '1.2.3.4.5',
      '256.1.1.1',
      'Chrome/140.0.0.0 Safari/537.36',
      'std::vector',
      'Bad::Cafe',
      '::',
      'a:b:c',
      'aa:bb:cc:dd:ee:ff',
      'https://example.com:8080/a:b',
      `${':'.repeat(100)}1`,
    ),
  ])('%j becomes %j', (text, clean) => {
    expect(withoutIps(text)).toBe(clean);
  });
});

describe('a secret in a text', () => {
  const names = new SecretNames(SECRET_NAMES);
  it.each([
    ['?a=1&password=hunter2&b=2', `?a=1&password=${F}&b=2`],
    ['session=abc; theme=dark; csrfToken=x', `session=${F}; theme=dark; csrfToken=${F}`],
    ["api_key='a b' c", `api_key='${F}' c`],
    ['password="a b', `password="${F}`],
    ['{"user":"bob","password":"hunter2","a":"...', `{"user":"bob","password":"${F}","a":"...`],
    ['{"password": "hun\\"ter2", "a": 1', `{"password": "${F}", "a": 1`],
    ['{"token":12345,"a":1...', `{"token":${F},"a":1...`],
    ['{"cookies":{"a":"b"},"c...', `{"cookies":${F}`],
    [`{'secret': 'x', 'a': 'y'}`, `{'secret': '${F}', 'a': 'y'}`],
    ['{\\"password\\":\\"hunter2\\",\\"a\\":1', `{\\"password\\":\\"${F}\\",\\"a\\":1`],
    ['user[password]=x', `user[password]=${F}`],
    ['a=1&user%5Bpassword%5D=x&b=2', `a=1&user%5Bpassword%5D=${F}&b=2`],
    ['user%5bpassword%5d=x', `user%5bpassword%5d=${F}`],
    ['user%5Bdb%2Epassword%5D=x user.password=y', `user%5Bdb%2Epassword%5D=${F} user.password=${F}`],
    ['%access_key=x', `%access_key=${F}`],
    ['login password=\\"hunter2\\" for', `login password=\\"${F}\\" for`],
    ['password=\\\\\\"a \\\\\\\\\\\\\\"b\\\\\\" c', `password=\\\\\\"${F}\\\\\\" c`],
    ["password=\\'a b", `password=\\'${F}`],
    ['password="a\\"b" c', `password="${F}" c`],
    ['password="a\\\\" c', `password="${F}" c`],
    ['session={"id":"s3cr3t"} a', `session=${F}`],
    ["a=b token=['x','y'] c", `a=b token=${F}`],
    ['authorization=Bearer eyJ.a-b_c level=info', `authorization=${F} level=info`],
    ["'http.authorization=basic  dXNlcjpwYXNz'", `'http.authorization=${F}'`],
    ['auth_token=Token abc, a', `auth_token=${F}, a`],
    ["curl -H 'Authorization: Bearer eyJ.a' x", `curl -H 'Authorization: ${F}' x`],
    ['Proxy-Authorization: Digest a\nHost: b', `Proxy-Authorization: ${F}\nHost: b`],
    ['authorization=Bearer', `authorization=${F}`],
    ['password=Sesame,open', `password=${F},open`],
    ...same(
      '',
      '=',
      '":"',
      'password=',
      'password="',
      'password=\\"\\"',
      `token=\\"${F}\\" "token": "${F}" token=${F}`,
      `authorization=Bearer ${F} Authorization: Bearer ${F}`,
      'Authorization: required',
      'the token: Basic blocks',
      'user%5Bname%5D=bob',
      '100%=1&%5=2&%=3',
      'max_tokens=5',
      'if (token === null)',
      'Unexpected token: <',
      'a=b&c=d',
      '{"user":"bob"...',
    ),
  ])('%j becomes %j', (text, clean) => {
    expect(withoutSecrets(text, names)).toBe(clean);
  });
});

it.each([
  ["'token':'", "' and more"],
  ['token=', ' and more'],
  ['token=Bearer ', ' and more'],
  ["'token':", ' and more', ' '],
])(
  'a secret behind %s that has not ended after a MiB takes the rest with it',
  (before, behind, char = 'x') => {
    const text = `a ${before}${char.repeat(2 * 1024 * 1024)}${behind}`;
    const clean = withoutSecrets(text, new SecretNames(SECRET_NAMES, []));
    expect(clean.endsWith(F)).toBe(true);
    expect(clean.startsWith(`a ${before.slice(0, 6)}`)).toBe(true);
    expect(clean.length).toBeLessThan(1024 * 1024 + 100);
  },
);

describe('the name of a secret', () => {
  const names = new SecretNames(SECRET_NAMES);
  it.each([
    'password',
    'PASSWORD',
    'userPassword',
    'password_confirmation',
    'password2',
    'X-Api-Key',
    'apiKey',
    'APIKey',
    'Set-Cookie',
    'http.request.header.cookie.theme',
    'PHPSESSID',
    'session_id',
    'X-CSRF-Token',
    'oauth2Token',
    'client.secret',
    'db passwd',
    'pass',
    'DB_PASS',
    'auth',
    'proxy-auth',
    'tokens',
    'api_keys',
    'passwordhash',
    'x-api-key',
  ])('%s', (name) => {
    expect(names.has(name)).toBe(true);
    expect(names.has(name)).toBe(true);
  });

  it.each([
    '',
    'pass_rate',
    'passed',
    'auth_type',
    'max_tokens',
    'tokens_left',
    'author',
    'sessions',
    'keys',
    'api',
    'secretary',
    'cookiecutter',
  ])('is not %j', (name) => {
    expect(names.has(name)).toBe(false);
    expect(names.has(name)).toBe(false);
  });

  it("of one's own may have letters of any script, also percent-encoded", () => {
    const own = new SecretNames(['contraseña', '密码']);
    const text = 'contraseña=x&mi_Contrase%C3%B1a=y&密码=z&caña=1&%FF%C3=2';
    expect(withoutSecrets(text, own)).toBe(
      `contraseña=${F}&mi_Contrase%C3%B1a=${F}&密码=${F}&caña=1&%FF%C3=2`,
    );
  });

  it('is found behind letters of any script, and between any blanks', () => {
    const secrets = new SecretNames(SECRET_NAMES);
    const text = '用户token=a 登录失败password=b ètoken=c {"password":\u00a0"d","token"\u3000: "e"';
    expect(withoutSecrets(text, secrets)).toBe(
      `用户token=${F} 登录失败password=${F} ètoken=${F} {"password":\u00a0"${F}","token"\u3000: "${F}"`,
    );
  });

  it('is compared by its last 64 characters', () => {
    const long = 'x'.repeat(100);
    expect(withoutSecrets(`${long}_password=a`, names)).toBe(`${long}_password=${F}`);
    expect(withoutSecrets(`password_${long}=a`, names)).toBe(`password_${long}=a`);
  });

  it("of one's own is found as a word too", () => {
    const own = new SecretNames(['ssn', 'birth date']);
    expect(['SSN', 'customerSsn', 'birth_date', 'birthDate'].filter((name) => !own.has(name))).toEqual([]);
    expect(['className', 'birth', 'password'].filter((name) => own.has(name))).toEqual([]);
  });
});

it('docs/privacy.md has the names of secrets', () => {
  const text = readFileSync(new URL('../../../docs/privacy.md', import.meta.url), 'utf8');
  const row = text.split('\n\n').find((part) => part.startsWith('`password`,')) ?? '';
  expect([...row.matchAll(/`(\w+)`/g)].map(([, name]) => name)).toEqual([...SECRET_NAMES]);
});

describe('a text that was written to take long', () => {
  const names = new SecretNames(SECRET_NAMES);
  const clean = (text: string): string =>
    withoutIps(withoutCards(withoutEmails(withoutSecrets(text, names))));
  const expectLinear = (textOf: (chars: number) => string): void => {
    const time = (chars: number): number => {
      const text = textOf(chars);
      const before = process.cpuUsage();
      clean(text);
      return process.cpuUsage(before).user / 1000;
    };
    time(20_000);
    // Ten times the length; a hundred times the time would be quadratic.
    const most = 40 * Math.max(8, Math.min(time(30_000), time(30_000), time(30_000)));
    // The least CPU time of up to three runs: what others do on this machine is not in it.
    let least = Number.POSITIVE_INFINITY;
    for (let run = 0; run < 3 && least >= most; run++) least = Math.min(least, time(300_000));
    expect(least).toBeLessThan(most);
  };

  it.each([
    'a',
    '4',
    '4 ',
    '4-',
    ':',
    '1:',
    '.',
    '1.',
    '@',
    'a@',
    '@a.',
    '%40',
    '=',
    '"',
    '":',
    '\\"',
    '\\',
    'token=',
    '"token":"',
    "token='",
    '2001:',
    'a.b@c.1',
  ])('%j many times takes no longer than its length allows', (unit) => {
    expectLinear((chars) => unit.repeat(chars / unit.length));
  });

  it.each(['-', 'xn--', 'a'])('a domain with a label of %j many times does not either', (unit) => {
    for (const end of ['a', '1', 'ü'])
      expectLinear((chars) => `a@b.${unit.repeat(chars / unit.length)}${end}`);
  });

  it('is not kept in memory for a name in it', () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    collect();
    const before = process.memoryUsage().heapUsed;
    for (let n = 0; n < 50; n++) clean(`${'x'.repeat(300_000)} tokens_of_its_own_${n}=1`);
    collect();
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(5_000_000);
  });
});
