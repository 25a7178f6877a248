// One event stream for all tabs of this browser.
"use strict";
const ports = new Set();
let source = null;
let last = null;
let all = []; // the topics that there are: the first event names them

function say(message) {
  for (const port of ports) port.postMessage(message);
}

function open() {
  source = new EventSource(self.name);
  source.onmessage = (message) => {
    last = JSON.parse(message.data);
    if (last.topics.length > all.length) all = last.topics;
    say(last);
  };
  source.addEventListener("signed-out", signedOut);
  source.onerror = () => {
    if (source && source.readyState === EventSource.CLOSED) { // refused: the browser tries no more by itself
      source = null;
      refused();
    } else say("lost");
  };
}

function signedOut() {
  if (source) source.close();
  source = last = null;
  say("out");
}

// An event stream does not say why it is refused; a request does. Of one that is not refused nothing is read.
async function refused() {
  const request = new AbortController();
  const status = await fetch(self.name, { signal: request.signal }).then((answer) => answer.status, () => 0);
  request.abort();
  if (status === 401 || status === 403) signedOut();
  else {
    say("lost");
    setTimeout(() => { if (ports.size && !source) open(); }, 2000);
  }
}

self.onconnect = (event) => {
  const port = event.ports[0];
  ports.add(port);
  port.onmessage = (message) => {
    if (message.data !== "bye") return;
    ports.delete(port);
    if (!ports.size && source) { source.close(); source = null; last = null; }
  };
  port.start();
  if (!source) open();
  else if (last) port.postMessage({ ...last, topics: all }); // something may have changed since the page was made
};
