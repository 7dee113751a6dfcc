// Posts twice with fetch, over one connection if the server keeps it. Prints a JSON list.
const { port, path, start, bytes, chunked } = JSON.parse(process.argv[2]);

function* pieces() {
  yield Buffer.from(start);
  for (let at = 0; at < bytes; at += 65_536) yield Buffer.alloc(Math.min(65_536, bytes - at), 'x');
}

const answers = [];
for (let n = 0; n < 2; n++) {
  const body = chunked ? ReadableStream.from(pieces()) : Buffer.concat([...pieces()]);
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { method: 'POST', body, duplex: 'half' });
  answers.push([response.status, await response.text()]);
}
console.log(JSON.stringify(answers));
