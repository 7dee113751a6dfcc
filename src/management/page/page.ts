/** The live page of the admin port, in one document with its style and its script. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { FILTER_NAMES } from '../../lib/filter-names.ts';
import { PLANS } from '../../projects/project.ts';

/** The names that the page's forms offer, as the page's script reads them. */
const KNOWN_NAMES = `const KNOWN_NAMES = ${JSON.stringify({ filters: FILTER_NAMES, plans: PLANS })};\n`;

/** Parts of the script. Each part calls functions of the parts before it. */
const SCRIPTS = [
  'address.js',
  'edit.js',
  'project.js',
  'heartbeats.js',
  'refusals.js',
  'letters.js',
  'manage.js',
  'js',
] as const;

type AdminPage = { html: string; headers: Readonly<Record<string, string>> };

const part = (extension: string): string =>
  readFileSync(new URL(`./page-view.${extension}`, import.meta.url), 'utf8');
const digest = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/**
 * Makes the page's Content-Security-Policy: only this style and this script run, and the script
 * fetches only from this port.
 */
const policy = (style: string, script: string): string =>
  [
    "default-src 'none'",
    `style-src ${digest(style)}`,
    `script-src ${digest(script)}`,
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');

let loaded: AdminPage | undefined;

/** Reads the parts of the page once, and keeps the result. */
export function loadAdminPage(): AdminPage {
  if (loaded) return loaded;
  const style = part('css');
  const script = KNOWN_NAMES + SCRIPTS.map(part).join('');
  const html = part('html')
    .replace('<!-- style -->', () => `<style>${style}</style>`)
    .replace('<!-- script -->', () => `<script>${script}</script>`);
  const headers = {
    'Content-Security-Policy': policy(style, script),
    'Cache-Control': 'no-store',
    'X-Content-Type-Options': 'nosniff',
    'Referrer-Policy': 'no-referrer',
  };
  loaded = { html, headers };
  return loaded;
}
