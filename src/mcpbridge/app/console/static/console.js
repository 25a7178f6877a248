// What every page of the console does in the browser: hear what changes, say when the bridge is away, show times.
"use strict";
(() => {
  const body = document.body;
  const prefix = "/console";
  const away = document.getElementById("away");
  const title = document.title;
  let isAway = false;

  // A topic is announced at once, and then at most so often; what comes meanwhile is announced at the end. htmx has a
  // throttle of its own, which drops what comes meanwhile, of other topics too: the last change would not be shown.
  const PACE = 1000;
  const paced = new Map();
  function announce(topic) {
    if (paced.has(topic)) {
      paced.set(topic, true);
      return;
    }
    paced.set(topic, false);
    body.dispatchEvent(new CustomEvent(`live:${topic}`));
    setTimeout(() => {
      const again = paced.get(topic);
      paced.delete(topic);
      if (again) announce(topic);
    }, topic === "calls" ? 2 * PACE : PACE);
  }

  function changed(news) {
    if (isAway) { // what is shown may be of another process by now
      isAway = false;
      location.reload();
      return;
    }
    const badge = document.getElementById("waiting");
    if (badge && badge.dataset.count !== String(news.waiting)) {
      badge.dataset.count = badge.textContent = String(news.waiting);
      badge.hidden = !news.waiting;
    }
    if (badge && badge.dataset.asked !== String(news.asked)) { // one more, also where another was answered meanwhile
      const more = news.asked > Number(badge.dataset.asked);
      badge.dataset.asked = String(news.asked);
      if (more) body.dispatchEvent(new CustomEvent("approval-waits", { detail: news }));
    }
    document.title = news.waiting ? `(${news.waiting}) ${title}` : title;
    news.topics.forEach(announce);
  }

  function lost() {
    if (isAway) return;
    isAway = true;
    away.hidden = false;
  }

  // Who is signed out, or has lost the role that opens the console, is shown nothing any more.
  const out = () => location.replace(`${prefix}/enter?ended`);

  // Browsers open six connections to a host. One worker holds the stream for all tabs; where there are no shared
  // workers each tab has its own while it is shown.
  function listen(address) {
    if (window.SharedWorker) {
      const worker = new SharedWorker(`${prefix}/static/live_worker.js`, { name: address });
      worker.port.onmessage = ({ data }) => (data === "lost" ? lost() : data === "out" ? out() : changed(data));
      worker.port.start();
      addEventListener("pagehide", () => worker.port.postMessage("bye"));
      addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
      return;
    }
    let source = null;
    const open = () => {
      source = new EventSource(address);
      source.onmessage = (message) => changed(JSON.parse(message.data));
      source.addEventListener("signed-out", () => { source.close(); out(); });
      source.onerror = lost;
    };
    document.addEventListener("visibilitychange", () => {
      if (document.hidden && source) { source.close(); source = null; }
      if (!document.hidden && !source) open();
    });
    if (!document.hidden) open();
  }
  // Only once the other scripts have run: what is announced before htmx and notify.js listen would be lost.
  if (body.dataset.live) document.addEventListener("DOMContentLoaded", () => listen(body.dataset.live));

  // Times of today have no date: the lines are shorter, and midnight shows them anew. `data-exact`: to the millisecond.
  let today = new Date().toDateString();
  function localTimes(root, which = ":not([data-local])") {
    for (const time of root.querySelectorAll(`time[datetime]${which}`)) {
      const at = new Date(time.dateTime);
      if (isNaN(at)) continue;
      const fraction = "exact" in time.dataset ? { fractionalSecondDigits: 3 } : {};
      const clock = { hour: "numeric", minute: "2-digit", second: "2-digit", ...fraction };
      const day = at.toDateString() === today ? {} : { year: "numeric", month: "numeric", day: "numeric" };
      time.title = `${at.toLocaleString()} (${time.dateTime})`;
      time.textContent = at.toLocaleString(undefined, { ...day, ...clock });
      time.dataset.local = "";
    }
  }
  localTimes(document);
  setInterval(() => {
    if (today === new Date().toDateString()) return;
    today = new Date().toDateString();
    localTimes(document, "");
  }, 60_000);
  document.addEventListener("htmx:afterSwap", (event) => localTimes(event.target));

  // An answer that says no is shown as well; without the bridge there is no answer.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.status >= 400 && event.detail.xhr.getResponseHeader("content-type")?.startsWith("text/html")) {
      event.detail.shouldSwap = true;
      event.detail.isError = false;
    }
  });
  document.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status === 401) {
      out();
      return;
    }
    const line = document.createElement("p");
    line.className = "banner bad";
    line.textContent = event.detail.xhr.responseText.slice(0, 500);
    document.getElementById("messages").replaceChildren(line);
  });
  document.addEventListener("htmx:sendError", lost);

  // A link that is called a button works as one: by the space bar too.
  document.addEventListener("keydown", (event) => {
    if (event.key !== " " || !event.target.matches?.("a[role=button]")) return;
    event.preventDefault();
    event.target.click();
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const from = document.getElementById(button.dataset.copy);
    navigator.clipboard?.writeText(from.dataset.text ?? from.textContent).then(() => {
      const before = button.textContent;
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = before; }, 1500);
    });
  });
})();
