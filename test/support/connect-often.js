/** Connects to a port of the loopback interface (the argument) again and again, and tells at the end how that failed, by code. */
import { connect } from 'node:net';

const port = Number(process.argv[2]);
const counts = {};
let stopped = false;

const once = () =>
  new Promise((resolve) => {
    let how = '';
    const socket = connect({ port, host: '127.0.0.1' });
    socket.once('connect', () => {
      how = 'connected, ';
    });
    socket.once('error', ({ code }) => {
      how += code;
    });
    socket.once('close', () => resolve(how));
  });

async function client() {
  while (!stopped) {
    const how = await once();
    counts[how] = (counts[how] ?? 0) + 1;
  }
}

process.once('disconnect', () => process.exit());
process.once('message', () => {
  stopped = true;
});
const clients = Array.from({ length: 8 }, client);
process.send('begun');
await Promise.all(clients);
process.send(counts);
process.disconnect();
