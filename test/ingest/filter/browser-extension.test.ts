import { describe, expect, it } from 'vitest';
import { cases, verdictOn } from './encodings.ts';

const MESSAGES = [
  'top.GLOBALS',
  'originalCreateNotification',
  'canvas.contentDocument',
  'MyApp_RemoveAllHighlights',
  'http://tt.epicplay.com',
  "Can't find variable: ZiteReader",
  'jigsaw is not defined',
  'ComboSearch is not defined',
  'http://loading.retry.widdit.com/',
  'atomicFindClose',
  'fb_xd_fragment',
  'bmi_SafeAddOnload',
  'EBCallBackMessageReceived',
  '_gCrWeb',
  'conduitPage',
  "null is not an object (evaluating 'elt.parentNode')",
  'plugin.setSuspendState is not a function',
  'Extension context invalidated',
  'webkit-masked-url:',
  "can't access dead object",
];

const SOURCES = [
  'chrome-extension://abcdef/content.js',
  'chrome://global/content/x.js',
  'moz-extension://1f-2e/inject.js',
  'safari-extension://com.example/x.js',
  'safari-web-extension://ABC/x.js',
  'https://graph.facebook.com/x',
  'https://connect.facebook.net/en_US/fbevents.js',
  'https://eatdifferent.com.woopra-ns.com/x.js',
  'https://static.woopra.com/js/woopra.js',
  'webkit-masked-url://hidden/',
  'http://127.0.0.1:4001/isrunning',
  'https://webappstoolbarba.texthelp.com/x.js',
  'http://metrics.itunes.apple.com.edgesuite.net/x.js',
  'https://ff.kis.v2.scr.kaspersky-labs.com/x.js',
];

const withMessage = (value: unknown) => ({ exception: { values: [{ type: 'Error', value }] } });
const withFrames = (...frames: unknown[]) => ({
  exception: { values: [{ type: 'Error', value: 'x is undefined', stacktrace: { frames } }] },
});

const PAGE = 'https://shop.example.com/assets/index.js';
const EXTENSION = 'chrome-extension://abcdef/content.js';
const OTHER_FILTERS = { filters: ['browser-extension'] } as const;

describe('the browser-extension filter', () => {
  it.each(MESSAGES)('takes an error whose message holds %s', (text) => {
    for (const message of cases(text)) {
      expect(verdictOn(withMessage(message), OTHER_FILTERS)).toBe('browser-extension');
      expect(verdictOn(withMessage(`Uncaught: ${message} (é)`), OTHER_FILTERS)).toBe('browser-extension');
    }
  });

  it.each(SOURCES)('takes an error whose innermost frame is %s', (source) => {
    for (const text of cases(source)) {
      expect(verdictOn(withFrames({ abs_path: PAGE }, { abs_path: text }), OTHER_FILTERS)).toBe(
        'browser-extension',
      );
      expect(verdictOn(withFrames({ filename: text }), OTHER_FILTERS)).toBe('browser-extension');
    }
  });

  it.each([
    'Cannot read properties of undefined',
    'top.GLOBAL',
    'jigsaw is defined',
    'Extension context is valid',
    'dead object',
    '',
  ])('leaves an error with the message %j', (message) => {
    expect(verdictOn(withMessage(message), OTHER_FILTERS)).toBeUndefined();
  });

  it.each([
    PAGE,
    'https://example.com/chrome-extension://x.js',
    'https://example.com/?from=chrome://x',
    'https://facebook.com/x.js',
    'https://static.woopra.com/js/other.js',
    'http://127.0.0.1:4001/other',
    'http://127.0.0.1:4002/isrunning',
    'kaspersky-labs.org',
  ])('leaves an error whose innermost frame is %s', (source) => {
    expect(verdictOn(withFrames({ abs_path: source }), OTHER_FILTERS)).toBeUndefined();
  });

  it('looks at the innermost frame only', () => {
    expect(verdictOn(withFrames({ abs_path: EXTENSION }, { abs_path: PAGE }))).toBeUndefined();
  });

  it('walks past frames without a source of their own', () => {
    const nameless = [
      { abs_path: '<anonymous>' },
      { filename: '[native code]' },
      { abs_path: '[native code]', filename: PAGE },
      { abs_path: '', filename: '' },
      { function: 'map' },
      null,
      7,
      [],
    ];
    expect(verdictOn(withFrames({ abs_path: EXTENSION }, ...nameless))).toBe('browser-extension');
    expect(verdictOn(withFrames({ abs_path: EXTENSION }, { abs_path: PAGE }, ...nameless))).toBeUndefined();
  });

  it('prefers abs_path to filename', () => {
    expect(verdictOn(withFrames({ abs_path: EXTENSION, filename: PAGE }))).toBe('browser-extension');
    expect(verdictOn(withFrames({ abs_path: PAGE, filename: EXTENSION }))).toBeUndefined();
  });

  it('reads exceptions that are a plain list, as some SDKs send them', () => {
    expect(verdictOn({ exception: [{ value: 'top.GLOBALS is undefined' }] })).toBe('browser-extension');
    const frames = [{ abs_path: EXTENSION }];
    expect(verdictOn({ exception: [{ stacktrace: { frames } }] })).toBe('browser-extension');
    expect(verdictOn({ exception: [{ value: 'mine' }, { value: 'top.GLOBALS' }] })).toBeUndefined();
    for (const exception of [[], ['top.GLOBALS'], [null], 'top.GLOBALS', { value: 'top.GLOBALS' }])
      expect(verdictOn({ exception })).toBeUndefined();
  });

  it('looks at the first exception only', () => {
    const second = { exception: { values: [{ value: 'mine' }, { value: 'top.GLOBALS' }] } };
    expect(verdictOn(second)).toBeUndefined();
    expect(verdictOn({ exception: { values: [null, { value: 'top.GLOBALS' }] } })).toBeUndefined();
  });

  it('looks at no other field and at no transaction', () => {
    expect(verdictOn({ message: 'top.GLOBALS', ...withMessage('mine') })).toBeUndefined();
    expect(verdictOn(withMessage('top.GLOBALS'), { type: 'transaction' })).toBeUndefined();
  });
});
