// A part of a page is made anew while a person is in it: the focus, what is unfolded and how far it is scrolled stay.
"use strict";
(() => {
  const places = new WeakMap(); // by the request: what a person had before its answer
  const shown = new Map(); // by the id of the part: the answer that it shows
  let pressed = null; // what had the focus when its request began: a button that is disabled meanwhile loses it

  // An element as somebody would describe it: the same one in the new part has the same description.
  function nameOf(element) {
    const names = ["href", "name", "value", "aria-label", "type"].map((name) => element.getAttribute(name) ?? "");
    const form = element.closest("form")?.getAttribute("action") ?? "";
    const text = element.matches("summary, a, button") ? element.textContent.trim() : "";
    return [element.tagName, form, ...names, text].join("\n");
  }

  const wordsOf = (element) => `${element.tagName}\n${element.textContent.trim()}`;

  // Where it is: by its id, else by its description, else among those that say the same, such as the buttons of rows.
  function pathOf(part, element) {
    if (element.id) return { id: element.id };
    const [name, words] = [nameOf(element), wordsOf(element)];
    const all = [...part.querySelectorAll(element.tagName)];
    return {
      name, words, tag: element.tagName,
      at: all.filter((one) => nameOf(one) === name).indexOf(element),
      row: all.filter((one) => wordsOf(one) === words).indexOf(element),
    };
  }

  function find(part, path) {
    if (path.id) return document.getElementById(path.id);
    const all = [...part.querySelectorAll(path.tag)];
    const alike = all.filter((one) => nameOf(one) === path.name);
    if (alike.length) return alike[path.at] ?? alike.at(-1);
    const rows = all.filter((one) => wordsOf(one) === path.words);
    return rows[path.row] ?? rows.at(-1);
  }

  const labelOf = (element) => element.id || element.getAttribute("aria-label") || "";

  document.addEventListener("htmx:beforeRequest", (event) => {
    const active = document.activeElement;
    pressed = event.detail.elt.contains(active) ? active : pressed;
  });

  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, xhr, serverResponse, requestConfig, pathInfo } = event.detail;
    const part = target?.closest?.("[id]");
    if (!part || xhr.status >= 400) return;
    // The same again is left as it is: what a person marked or typed stays, and nothing is read out twice.
    const answer = `${pathInfo.requestPath}\n${serverResponse}`;
    if (target === part && requestConfig.verb === "get" && shown.get(part.id) === answer) {
      event.detail.shouldSwap = false;
      return;
    }
    shown.set(part.id, answer);
    const active = document.activeElement === document.body ? pressed : document.activeElement;
    pressed = null;
    places.set(xhr, {
      id: part.id,
      focus: active && active !== part && part.contains(active) ? pathOf(part, active) : null,
      open: [...part.querySelectorAll("details")].map((one) => [pathOf(part, one.querySelector("summary")), one.open]),
      scrolled: [...part.querySelectorAll("pre, .scroll, textarea")]
        .filter((one) => one.scrollTop || one.scrollLeft)
        .map((one) => ({
          label: labelOf(one), x: one.scrollLeft, y: one.scrollTop,
          isAtEnd: one.scrollTop > 0 && one.scrollTop + one.clientHeight >= one.scrollHeight - 2,
        })),
    });
  });

  document.addEventListener("htmx:afterRequest", (event) => {
    const place = places.get(event.detail.xhr);
    const part = place && document.getElementById(place.id);
    if (!part) return;
    places.delete(event.detail.xhr);
    for (const [path, open] of place.open) {
      const details = find(part, path)?.closest("details");
      if (details && details.open !== open) details.open = open;
    }
    for (const { label, x, y, isAtEnd } of place.scrolled) {
      const one = [...part.querySelectorAll("pre, .scroll, textarea")].find((each) => label && labelOf(each) === label);
      if (one) { one.scrollLeft = x; one.scrollTop = isAtEnd ? one.scrollHeight : y; }
    }
    const active = document.activeElement;
    if (!place.focus || (active && active !== document.body)) return;
    const again = find(part, place.focus);
    if (again) {
      again.focus({ preventScroll: true });
    } else { // it is gone: whoever works by keys goes on from here, and not from the top of the page
      part.tabIndex = -1;
      part.focus({ preventScroll: true });
    }
  });
})();
