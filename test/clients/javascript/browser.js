// A page with an unmodified @sentry/browser. Bundled by the test, which calls `window.step`.
import * as Sentry from '@sentry/browser';
import { begin } from './steps.js';

const asked = new URLSearchParams(location.search);
window.step = begin(Sentry, asked.get('dsn'), asked.get('lifecycle'));
