/**
 * The live page of the admin port: one document with its style and script inside, so that it loads
 * nothing else.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

type AdminPage = { html: string; headers: Readonly<Record<string, string>> };

const part = (extension: string): string =>
  readFileSync(new URL(`./page-view.${extension}`, import.meta.url), 'utf8');
const digest = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** Nothing but this very style and script runs, and only our own figures are fetched. */
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

/** Reads the page's parts, once. */
export function loadAdminPage(): AdminPage {
  if (loaded) return loaded;
  const [style, script] = [part('css'), `${part('edit.js')}${part('manage.js')}${part('js')}`];
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
