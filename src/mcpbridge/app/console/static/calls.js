// Calls that run: for how long by now. Their page: cancelling a call that was made from it.
"use strict";
(() => {
  const units = [[48 * 3600, 86400, "d"], [7200, 3600, "h"], [120, 60, "min"], [0, 1, "s"]];
  function words(seconds) {
    const [, length, unit] = units.find(([from]) => seconds >= from) ?? units.at(-1);
    return `${Math.max(0, Math.round(seconds / length))} ${unit}`;
  }
  setInterval(() => {
    for (const cell of document.querySelectorAll("[data-since]")) {
      cell.textContent = words(Date.now() / 1000 - Number(cell.dataset.since));
    }
  }, 1000);

  // A call that is made from the page ends with its request: dropping that cancels it.
  const cancel = document.getElementById("cancel-made");
  let under = null;
  document.addEventListener("htmx:beforeRequest", (event) => {
    const form = event.target.closest("form[data-cancellable]");
    if (!form || !cancel) return;
    under = form;
    cancel.hidden = false;
    document.getElementById("made").replaceChildren();
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.target !== under) return;
    under = null;
    cancel.hidden = true;
  });
  cancel?.addEventListener("click", () => {
    const line = document.createElement("p");
    line.className = "banner info";
    line.textContent = "The call is cancelled.";
    if (under) htmx.trigger(under, "htmx:abort");
    document.getElementById("made").replaceChildren(line);
  });
})();
