// The inbox: keys that answer the call with the focus, no answer to a call that only just moved under the pointer, and
// the button that asks for notifications.
"use strict";
(() => {
  const inbox = document.getElementById("inbox");
  const keysOn = document.getElementById("keys-on");
  const SETTLING = 400; // milliseconds after a change for which nothing is answered
  let settledAt = 0;

  if (keysOn) {
    keysOn.checked = localStorage.getItem("mcpbridge-keys") !== "off";
    keysOn.addEventListener("change", () => localStorage.setItem("mcpbridge-keys", keysOn.checked ? "on" : "off"));
  }

  const calls = () => [...inbox.querySelectorAll("[data-approval]")];
  const shown = () => calls().map((call) => call.dataset.approval).join();

  let before = shown();
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.target !== inbox) return;
    const now = shown();
    if (now !== before) {
      before = now;
      settledAt = performance.now() + SETTLING;
      inbox.classList.add("settling");
      setTimeout(() => { if (performance.now() >= settledAt) inbox.classList.remove("settling"); }, SETTLING + 10);
    }
  });

  function move(by) {
    const all = calls();
    const at = all.findIndex((call) => call.contains(document.activeElement));
    const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
    if (!keysOn?.checked || typing || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (event.key === "j" || event.key === "k") {
      move(event.key === "j" ? 1 : -1);
    } else if ("asdx".includes(event.key) && event.key.length === 1) {
      if (performance.now() < settledAt) return;
      const call = document.activeElement?.closest?.("[data-approval]");
      call?.querySelector(`[data-key="${event.key}"]`)?.click();
    } else {
      return;
    }
    event.preventDefault();
  });

  // -- notifications: notify.js shows them, on whichever page of the console is open

  const button = document.getElementById("notify");
  const state = document.getElementById("notify-state");
  if (!("Notification" in window)) {
    state.textContent = "This browser shows no notifications.";
    return;
  }
  const isOn = () => Notification.permission === "granted" && localStorage.getItem("mcpbridge-notify") === "on";
  function show() {
    button.hidden = false;
    button.textContent = isOn() ? "Stop notifying me" : "Notify me of new ones";
    state.textContent = Notification.permission === "denied" ? "The browser was told to show none of this page." : "";
  }
  button.addEventListener("click", async () => {
    if (isOn()) {
      localStorage.setItem("mcpbridge-notify", "off");
    } else if ((await Notification.requestPermission()) === "granted") {
      localStorage.setItem("mcpbridge-notify", "on");
    }
    show();
  });
  show();
})();
