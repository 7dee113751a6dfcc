// A page with React and an unmodified @sentry/react. Its errors are thrown while a component is drawn, and caught by the SDK's boundary.
import * as Sentry from '@sentry/react';
import { createElement } from 'react';
import { createRoot } from 'react-dom/client';
import { begin } from './steps.js';

const asked = new URLSearchParams(location.search);
const run = begin(Sentry, asked.get('dsn'), asked.get('lifecycle'));

const Cart = ({ text }) => {
  throw new TypeError(text);
};
const drawWithError = (text) =>
  new Promise((resolve) => {
    const onError = (_error, _stack, id) => resolve({ id });
    const boundary = createElement(Sentry.ErrorBoundary, { onError }, createElement(Cart, { text }));
    createRoot(document.body.appendChild(document.createElement('main'))).render(boundary);
  });
window.step = (step) => (step.do === 'exception' ? drawWithError(step.text) : run(step));
