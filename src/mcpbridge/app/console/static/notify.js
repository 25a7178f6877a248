// A notification of the browser when one more call waits for approval, if a person asked for that on the page Approvals.
// It says nothing of the call: that is the server's and the client's text.
"use strict";
document.body.addEventListener("approval-waits", (event) => {
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  if (localStorage.getItem("mcpbridge-notify") !== "on") return;
  const waiting = event.detail.waiting;
  const body = waiting === 1 ? "One call waits for you." : `${waiting} calls wait for you.`;
  // Open pages of one console share a tag, so that there is one notification, whichever page is the first.
  const shown = new Notification("mcpbridge: approval", { body, tag: "mcpbridge-approvals" });
  shown.onclick = () => {
    window.focus();
    if (!document.getElementById("inbox")) location.href = "/console/approvals";
    shown.close();
  };
});
