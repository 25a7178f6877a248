// The form of a tool's arguments: lists grow by a copy of their template, and items are taken out.
"use strict";
(() => {
  const named = ["name", "id", "for", "aria-describedby", "data-list", "data-item", "data-add"];

  // Names begin with that of the list; those of the item that is copied with a placeholder in place of its number.
  function rename(root, before, after) {
    for (const element of root.querySelectorAll("*")) {
      for (const attribute of named) {
        const value = element.getAttribute(attribute);
        if (value?.includes(before)) element.setAttribute(attribute, value.replaceAll(before, after));
      }
      if (element instanceof HTMLTemplateElement) rename(element.content, before, after);
    }
  }

  function numberOf(list) {
    const used = [...list.parentElement.querySelectorAll(":scope > .items > .item [name]")]
      .map((control) => parseInt(control.name.slice(list.dataset.list.length + 1), 10))
      .filter((number) => !isNaN(number));
    return Math.max(-1, ...used) + 1;
  }

  document.addEventListener("click", (event) => {
    const add = event.target.closest("[data-add]");
    if (add) {
      const box = add.parentElement;
      const list = box.querySelector(":scope > .items");
      const template = box.querySelector(":scope > template");
      const item = template.content.cloneNode(true);
      rename(item, template.dataset.item, `${list.dataset.list}.${numberOf(list)}`);
      const first = item.querySelector("input:not([type=hidden]), textarea, select");
      list.append(item);
      first?.focus();
    }
    const remove = event.target.closest("[data-remove]");
    if (remove) {
      const item = remove.closest(".item");
      const next = item.closest("fieldset").querySelector(":scope > [data-add]");
      item.remove();
      next?.focus();
    }
  });
})();
