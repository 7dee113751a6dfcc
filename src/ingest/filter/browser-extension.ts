/**
 * Filter of errors that a browser extension, an injected script or an old toolbar threw in the
 * page, not the page itself.
 */
import { anyOf, arrayAt, type Filter, type JsonObject, objectAt, textAt } from './payload.ts';

/** The message of an error that is filtered contains one of these texts. */
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

/** Schemes with which the source (URL of the script) of the innermost frame of an error starts. */
const SOURCE_SCHEMES = [
  'chrome-extension://',
  'chrome://',
  'moz-extension://',
  'safari-extension://',
  'safari-web-extension://',
];

/**
 * The source of the innermost frame contains one of these texts, or starts with one of
 * SOURCE_SCHEMES.
 */
const SOURCES = [
  'graph.facebook.com',
  'connect.facebook.net',
  'eatdifferent.com.woopra-ns.com',
  'static.woopra.com/js/woopra.js',
  'webkit-masked-url',
  '127.0.0.1:4001/isrunning',
  'webappstoolbarba.texthelp.com/',
  'metrics.itunes.apple.com.edgesuite.net/',
  'kaspersky-labs.com',
];

const MESSAGE = anyOf(MESSAGES);
const SOURCE_SCHEME = anyOf(SOURCE_SCHEMES, '^');
const SOURCE = anyOf(SOURCES);
const NO_SOURCE: ReadonlySet<string> = new Set(['', '<anonymous>', '[native code]']);

/** Returns the longest of the parts into which slashes divide a text. */
const longestPart = (text: string): string =>
  text.split('/').reduce((longest, part) => (part.length > longest.length ? part : longest));

/**
 * Needles of the filter ({@link Filter.needles}). A scheme is at the start of its string, so its
 * needle begins with a quote: `chrome:` in the middle of a sentence is no reason to parse.
 */
const needles = [
  ...[...MESSAGES, ...SOURCES].map(longestPart),
  ...SOURCE_SCHEMES.map((scheme) => `"${longestPart(scheme)}`),
].map((text) => text.toLowerCase());

/** Returns the source of the innermost frame that has one; '' when none has. */
function sourceOf(exception: unknown): string {
  const frames = arrayAt(objectAt(exception, 'stacktrace'), 'frames');
  for (let index = frames.length - 1; index >= 0; index--) {
    const source = textAt(frames[index], 'abs_path') || textAt(frames[index], 'filename');
    if (!NO_SOURCE.has(source)) return source;
  }
  return '';
}

function judgeItem(payload: JsonObject): boolean {
  const exception = arrayAt(objectAt(payload, 'exception'), 'values')[0] ?? arrayAt(payload, 'exception')[0];
  if (MESSAGE.test(textAt(exception, 'value'))) return true;
  const source = sourceOf(exception);
  return SOURCE_SCHEME.test(source) || SOURCE.test(source);
}

export const browserExtension: Filter = {
  name: 'browser-extension',
  itemTypes: ['event'],
  needles,
  judgeItem,
};
