// All that a client of `consilium.v1` needs: say hello, upload a file, ask, show what comes.
const room = new URLSearchParams(location.search).get("room") ?? "lobby";
const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/v1/rooms/${room}`, "consilium.v1");
const send = (message) => socket.send(JSON.stringify(message));
const show = (text) => document.getElementById("log").append(text);
const id = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
const uploads = new Map(); // stream → { file, offset, sequence, credit }

socket.onopen = () => send({ type: "hello", session: id(), client: "example/1", name: "Example" });
socket.onclose = ({ code }) => show(`\nclosed with ${code}\n`);
socket.onmessage = ({ data }) => {
  for (const message of [JSON.parse(data)].flat()) receive(message);
};

function receive(message) {
  if (message.type === "welcome") show(`in room ${message.room} with ${message.model}\n`);
  if (message.type === "heartbeat") send({ type: "heartbeat.ack", t: message.t });
  if (message.type === "stream.opened") grant(message.stream, message.credit);
  if (message.type === "stream.credit") grant(message.stream, message.credit);
  if (message.type === "asset.read") show(`\n${message.asset} was read\n`);
  if (message.type === "turn.started") show(`\n${message.actor.name}: ${message.question}\n`);
  if (message.type === "turn.delta") show(message.text);
  if (["error", "nack", "asset.failed", "turn.failed"].includes(message.type)) show(`\n${message.code}: ${message.message}\n`);
}

// A chunk is a 24-byte header in network order and at most 64 KiB; credit says how many bytes may go.
async function grant(stream, credit) {
  const upload = uploads.get(stream);
  if (!upload) return;
  upload.credit += credit;
  if (upload.isSending) return;
  upload.isSending = true;
  while (upload.offset < upload.file.size && upload.credit > 0) {
    const size = Math.min(65536, upload.credit, upload.file.size - upload.offset);
    const payload = await upload.file.slice(upload.offset, upload.offset + size).arrayBuffer();
    const frame = new DataView(new ArrayBuffer(24 + size));
    frame.setUint8(0, 1); // version
    frame.setUint8(1, 1); // kind: file
    frame.setUint32(4, stream);
    frame.setUint32(8, upload.sequence++);
    frame.setUint32(20, size);
    new Uint8Array(frame.buffer).set(new Uint8Array(payload), 24);
    socket.send(frame);
    upload.offset += size;
    upload.credit -= size;
  }
  upload.isSending = false;
  if (upload.offset === upload.file.size && uploads.delete(stream)) send({ type: "stream.close", stream });
}

document.getElementById("file").onchange = ({ target }) => {
  const [file] = target.files;
  const stream = Math.floor(Math.random() * 1e9) + 1;
  uploads.set(stream, { file, offset: 0, sequence: 0, credit: 0, isSending: false });
  send({ type: "stream.open", stream, name: file.name, media_type: file.type, size: file.size });
};
document.getElementById("ask").onsubmit = (event) => {
  event.preventDefault();
  send({ type: "ask", turn: id(), text: document.getElementById("text").value });
};
